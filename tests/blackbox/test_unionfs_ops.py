"""What ordinary programs do: each is done in a union and in a plain directory, and must come out the same."""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import select
import shutil
import signal
import stat
import struct
import subprocess
import tempfile
import time

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import (ACL_GROUP, ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, Area, As, KIB, MIB,
                          O_TMPFILE, Union, acl, errno_of, fsync_dir, kernel_has_passthrough, libc, read, run, wait_for,
                          write)

libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_long, ctypes.c_long]
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
USER, OTHER = As(1000, 1000), As(1001, 1001)


class Pair:
    """A directory in a union, which all of its three branches have, and a plain one."""

    def __init__(self, union, top, plain):
        self.union, self.top, self.plain = union, str(top), str(plain)

    def both(self, fn, *args):
        """Calls fn(directory, …) for both; the results must agree."""
        results = []
        for top in (self.top, self.plain):
            before = os.umask(0o022)
            try:
                results.append(fn(top, *args))
            except OSError as e:
                results.append(("error", errno.errorcode[e.errno]))
            finally:
                os.umask(before)
        differ = [r for r in zip(*results) if r[0] != r[1]] if all(isinstance(r, list) for r in results) else results
        assert results[0] == results[1], f"(union, plain): {differ}"
        return results[0]


@pytest.fixture(scope="module", params=["on", "off"])
def union(request):
    if request.param == "on" and not kernel_has_passthrough():
        pytest.skip("the kernel has no FUSE passthrough")
    area = Area(tempfile.mkdtemp(prefix="ufs-", dir="/dev/shm"))
    os.chmod(area.path, 0o711)
    try:
        u = Union(area, [area.disk() for _ in range(3)], passthrough=request.param).start()
        u.plain = area.disk()
        yield u
        u.stop()
    finally:
        area.close()


@pytest.fixture
def pair(union, request):
    union.n_pairs = getattr(union, "n_pairs", 0) + 1
    name = f"t{union.n_pairs}"
    for b in (*union.branches, union.plain):
        (b / name).mkdir(mode=0o755)
    yield Pair(union, union.path / name, union.plain / name)
    shutil.rmtree(union.path / name)
    shutil.rmtree(union.plain / name)


@contextlib.contextmanager
def opened(path, flags=os.O_RDWR, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        yield fd
    finally:
        os.close(fd)


def open_close(path, flags, mode=0o644):
    with opened(path, flags, mode):
        pass


def mode(path):
    return oct(stat.S_IMODE(os.lstat(path).st_mode))


def owner(path):
    st = os.lstat(path)
    return [st.st_uid, st.st_gid, oct(stat.S_IMODE(st.st_mode))]


def fallocate(fd, how, offset, length):
    if libc.fallocate(fd, how, offset, length) < 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def make(path, data=b"x", mode=0o644, uid=0, gid=0):
    write(path, data)
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    return path


# ------------------------------------------------------------------------ permissions

@pytest.mark.parametrize("groups", [[], [50], [7, 50, 60]])
def test_permissions_depend_on_owner_group_and_supplementary_groups(pair, groups):
    def all_modes(top):
        results = {}
        for m in (0o700, 0o070, 0o007, 0o644, 0o060, 0o606):
            path = make(f"{top}/f{m:o}", mode=m, uid=1000, gid=50)
            os.mkdir(f"{top}/d{m:o}")
            os.chown(f"{top}/d{m:o}", 1000, 50)
            os.chmod(f"{top}/d{m:o}", m)
            for who in (As(1000, 1000, groups), As(1001, 1001, groups), As(1001, 50), As(0, 0)):
                results[f"{m:o} {who.uid} {who.gid} {groups}"] = [
                    who(errno_of, open_close, path, os.O_RDONLY), who(errno_of, open_close, path, os.O_WRONLY),
                    who(errno_of, os.listdir, f"{top}/d{m:o}"), who(errno_of, os.mkdir, f"{top}/d{m:o}/{who.uid}"),
                    who(errno_of, os.stat, f"{top}/d{m:o}/."), who(os.access, path, os.X_OK),
                    who(errno_of, os.chmod, path, m), who(errno_of, os.chown, path, 1000, 50),
                    who(errno_of, os.utime, path), who(errno_of, os.utime, path, (1, 1)),
                    who(errno_of, os.truncate, path, 1), who(errno_of, os.setxattr, path, "user.a", b"b"),
                    who(errno_of, os.getxattr, path, "user.a")]
        return results
    pair.both(all_modes)


def test_in_a_sticky_directory_only_owners_remove_and_rename(pair):
    def sticky(top):
        d = f"{top}/tmp"
        os.mkdir(d)
        os.chmod(d, 0o1777)
        results = []
        for name, who in (("a", USER), ("b", OTHER)):
            who(write, f"{d}/{name}", b"x")
            who(os.mkdir, f"{d}/d{name}")
        for who in (USER, OTHER):
            results.append([who(errno_of, os.rename, f"{d}/a", f"{d}/a2"), who(errno_of, os.rename, f"{d}/a2", f"{d}/a"),
                            who(errno_of, os.rename, f"{d}/da", f"{d}/da2"),
                            who(errno_of, os.rename, f"{d}/da2", f"{d}/da"),
                            who(errno_of, os.rename, f"{d}/b", f"{d}/a"), who(errno_of, os.unlink, f"{d}/b"),
                            who(errno_of, os.rmdir, f"{d}/db"), who(errno_of, os.link, f"{d}/a", f"{d}/l{who.uid}")])
        return results, sorted(os.listdir(d))
    pair.both(sticky)


def test_what_is_made_belongs_to_its_maker_and_has_the_umask(pair):
    def makes(top):
        os.chmod(top, 0o777)

        def as_user(mask):
            os.umask(mask)
            p = f"{top}/{mask:o}"
            write(f"{p}f", b"", mode=0o6777)
            os.mkdir(f"{p}d", 0o1777)
            os.mkfifo(f"{p}p", 0o666)
            os.symlink("target", f"{p}l")
            os.mknod(f"{p}s", stat.S_IFSOCK | 0o777)
            with opened(top, O_TMPFILE | os.O_RDWR, 0o666) as fd:
                return [owner(f"{p}{k}") for k in "fdpls"] + [stat.S_IMODE(os.fstat(fd).st_mode)]
        return [who(as_user, mask) for who in (As(1000, 1000), As(1001, 50, [60]), As(0, 0))
                for mask in (0o000, 0o022, 0o077, 0o777) if not os.path.lexists(f"{top}/{mask:o}{who.uid}")
                and not clean(top)]
    pair.both(makes)


def clean(top):
    for e in os.scandir(top):
        (os.rmdir if e.is_dir(follow_symlinks=False) else os.unlink)(e.path)


def test_in_a_setgid_directory_all_get_its_group(pair):
    def setgid(top):
        results = []
        for gid, groups in ((50, [50]), (50, []), (1000, [])):
            d = f"{top}/{gid}{len(groups)}"
            os.mkdir(d)
            os.chown(d, 0, gid)
            os.chmod(d, 0o2777)
            for who in (As(1000, 1000, groups), As(0, 0)):
                p = f"{d}/{who.uid}"
                who(write, f"{p}f", b"", os.O_CREAT | os.O_WRONLY, 0o2775)
                who(os.mkdir, f"{p}d")
                who(os.mkdir, f"{p}d/sub")
                who(os.mkfifo, f"{p}p")
                who(os.symlink, "x", f"{p}l")
                results.append([owner(p + k) for k in ("f", "d", "d/sub", "p", "l")])
        return results
    pair.both(setgid)


def test_a_setgid_file_that_root_makes_in_a_setgid_directory_stays_setgid(pair):
    def makes(top):
        os.chown(top, 0, 50)
        os.chmod(top, 0o2777)
        for who in (As(0, 0), As(1000, 1000), As(1000, 1000, [50])):
            who(write, f"{top}/{who.uid}{who.groups}", b"", os.O_CREAT | os.O_WRONLY, 0o2775)
            who(os.mknod, f"{top}/n{who.uid}{who.groups}", 0o2775 | stat.S_IFREG)
        return {n: owner(f"{top}/{n}") for n in sorted(os.listdir(top))}
    pair.both(makes)


def pwrite(path):
    with opened(path, os.O_WRONLY) as fd:
        os.pwrite(fd, b"y", 0)


def fall(path):
    with opened(path, os.O_WRONLY) as fd:
        fallocate(fd, 0, 0, 10000)


def copy_into(path):
    with opened("/proc/self/exe", os.O_RDONLY) as source, opened(path, os.O_WRONLY) as fd:
        os.sendfile(fd, source, 0, 100)


def copy_range(path):
    with opened(path + "source", os.O_RDONLY) as source, opened(path, os.O_WRONLY) as fd:
        os.copy_file_range(source, fd, 100)


@pytest.mark.parametrize("change", [
    pwrite, fall, copy_into, copy_range, lambda p: os.truncate(p, 1), lambda p: open_close(p, os.O_WRONLY | os.O_TRUNC),
    lambda p: os.chown(p, 1000, 1000), lambda p: os.chown(p, -1, 50), lambda p: os.chmod(p, 0o6755),
    lambda p: os.utime(p), lambda p: os.setxattr(p, "user.a", b"")],
    ids=["write", "fallocate", "sendfile", "copy_file_range", "truncate", "O_TRUNC", "chown", "chgrp", "chmod", "utime",
         "setxattr"])
def test_set_id_bits_are_cleared_as_on_a_plain_filesystem(pair, change):
    def clears(top):
        results = []
        for m in (0o6777, 0o4755, 0o2755, 0o2745, 0o6711):
            for who in (As(1000, 1000, [50]), As(1001, 1001), As(0, 0)):
                if who.uid == 0 and change in (pwrite, fall, copy_into, copy_range):
                    continue  # with passthrough the kernel writes as nobody, who keeps none
                if m == 0o2745 and who.uid == 1000 and change in (pwrite, copy_into, copy_range):
                    continue  # and is in no group
                path = make(f"{top}/{m:o}{who.uid}", b"x" * 100, m, 1000, 1000)
                make(path + "source", b"s" * 100)
                results.append([f"{m:o}", who.uid, who(errno_of, change, path), owner(path)])
        return results
    pair.both(clears)


def test_capabilities_of_a_file_go_when_it_is_written(pair):
    cap = struct.pack("<IIIII", 0x02000001, 0x400, 0, 0, 0)

    def caps(top):
        results = []
        for i, change in enumerate((pwrite, lambda p: os.truncate(p, 0), lambda p: os.chown(p, 1000, 1000),
                                    lambda p: open_close(p, os.O_WRONLY | os.O_TRUNC), lambda p: os.chmod(p, 0o700))):
            for who in (As(0, 0), As(1000, 1000)):
                path = make(f"{top}/{i}{who.uid}", mode=0o777, uid=1000, gid=1000)
                os.setxattr(path, "security.capability", cap)
                assert os.getxattr(path, "security.capability") == cap
                results.append([who(errno_of, change, path), os.listxattr(path),
                                who(errno_of, os.setxattr, path, "security.capability", cap)])
        return results
    pair.both(caps)


def test_extended_attributes_of_all_kinds_are_kept_apart(pair):
    def xattrs(top):
        f, d, link = make(f"{top}/f", mode=0o666, uid=1000, gid=1000), f"{top}/d", f"{top}/l"
        os.mkdir(d)
        os.chown(d, 1000, 1000)
        os.symlink("f", link)
        results = []
        for p in (f, d):
            for who in (As(0, 0), USER):
                for name in ("user.a", "trusted.a", "security.a", "nonsense", "user.", "system.nothing"):
                    results.append([name, who.uid, who(errno_of, os.setxattr, p, name, b"value"),
                                    who(errno_of, os.getxattr, p, name)])
                results.append(who(lambda: sorted(n for n in os.listxattr(p) if n != "security.selinux")))
                results.append([who(errno_of, os.setxattr, p, "user.a", b"", flag) for flag in (1, 2)])
                results.append([who(errno_of, os.removexattr, p, n) for n in ("user.a", "user.none", "trusted.a")])
            results.append([errno_of(os.setxattr, p, "user.large", b"x" * n) for n in (3000, 65536, 65537)])
            results.append([len(os.getxattr(p, "user.large")), errno_of(os.setxattr, p, "user." + 250 * "n", b""),
                            errno_of(os.setxattr, p, "user." + 251 * "n", b"")])
        results.append([errno_of(os.setxattr, link, n, b"x", follow_symlinks=False) for n in ("user.a", "trusted.a")])
        results.append(os.listxattr(link, follow_symlinks=False))
        return results
    pair.both(xattrs)


def test_names_of_trusted_attributes_are_shown_to_root_alone(pair):
    def names(top):
        make(f"{top}/f", mode=0o666, uid=1000)
        for name in ("user.a", "trusted.secret", "user.b", "trusted.z"):
            os.setxattr(f"{top}/f", name, b"x")
            os.setxattr(top, name, b"x")
        return [who(lambda: [sorted(os.listxattr(f"{top}/f")), sorted(os.listxattr(top))]) for who in (USER, As(0, 0))]
    assert pair.both(names)[0] == [["user.a", "user.b"], ["user.a", "user.b"]]


# --------------------------------------------------------------------------------- ACLs

def with_user(uid, perm, mask=7, group=0, other=0):
    return acl((ACL_USER_OBJ, 7, -1), (ACL_USER, perm, uid), (ACL_GROUP_OBJ, group, -1), (ACL_GROUP, 4, 60),
               (ACL_MASK, mask, -1), (ACL_OTHER, other, -1))


def test_an_acl_decides_who_may_do_what(pair):
    def acls(top):
        f, results = make(f"{top}/f", mode=0o600), []
        for perm in (0, 2, 4, 6):
            for mask in (0, 4, 7):
                os.setxattr(f, "system.posix_acl_access", with_user(1000, perm, mask))
                results.append([mode(f)] + [who(errno_of, open_close, f, flags) for flags in (os.O_RDONLY, os.O_WRONLY)
                                            for who in (USER, OTHER, As(1001, 1001, [60]))])
        os.chmod(f, 0o640)
        results.append([os.getxattr(f, "system.posix_acl_access"), mode(f)])
        os.chmod(f, 0o666)
        results.append([os.getxattr(f, "system.posix_acl_access"), mode(f), USER(errno_of, open_close, f, os.O_RDWR)])
        os.removexattr(f, "system.posix_acl_access")
        results.append([os.listxattr(f), mode(f), errno_of(os.removexattr, f, "system.posix_acl_access")])
        results.append(USER(errno_of, os.setxattr, f, "system.posix_acl_access", with_user(1000, 7)))
        results.append(errno_of(os.setxattr, f, "system.posix_acl_access", b"nonsense"))
        results.append(errno_of(os.setxattr, f, "system.posix_acl_default", with_user(1000, 7)))
        return results
    pair.both(acls)


def test_default_acls_are_inherited_and_override_the_umask(pair):
    def inherits(top):
        os.setxattr(top, "system.posix_acl_default", with_user(1000, 6, mask=6, group=5, other=4))
        os.chmod(top, 0o777)

        def makes():
            os.umask(0o077)
            p = f"{top}/{os.getuid()}"
            write(f"{p}f", b"", mode=0o666)
            os.mkdir(f"{p}d", 0o777)
            os.mkdir(f"{p}d/sub", 0o700)
            os.mkfifo(f"{p}p", 0o640)
            os.symlink("x", f"{p}l")
            return [[owner(p + k), sorted((n, os.getxattr(p + k, n, follow_symlinks=False).hex())
                                          for n in os.listxattr(p + k, follow_symlinks=False))]
                    for k in ("f", "d", "d/sub", "p", "l")]
        return [who(makes) for who in (As(0, 0), USER)]
    pair.both(inherits)


def test_an_acl_clears_the_setgid_bit_of_who_is_not_in_the_group(pair):
    def clears(top):
        results = []
        os.mkdir(f"{top}/d")
        for who in (As(1000, 1000), As(1000, 1000, [50]), As(0, 0)):
            for gid in (50, 0):
                f = make(f"{top}/f", uid=1000, gid=gid)
                for path in (f, f"{top}/d"):
                    os.chown(path, 1000, gid)
                    os.chmod(path, 0o2775)
                    who(os.setxattr, path, "system.posix_acl_access", with_user(1001, 7, mask=7, group=5))
                    results.append(mode(path))
        return results
    pair.both(clears)


def test_setfacl_and_getfacl_see_what_they_see_elsewhere(pair):
    def tools(top):
        os.mkdir(f"{top}/d")
        make(f"{top}/d/f")
        run("setfacl", "-R", "-m", "u:1000:rwX,d:u:1000:rwX,d:g:50:rx", f"{top}/d")
        write(f"{top}/d/new", b"")
        first = run("getfacl", "-np", ".", "f", "new", cwd=f"{top}/d").stdout
        run("setfacl", "-Rb", f"{top}/d")
        return [first, run("getfacl", "-np", ".", "f", "new", cwd=f"{top}/d").stdout]
    pair.both(tools)


# --------------------------------------------------------------------------- names and links

def test_hard_links_are_one_file(pair):
    def links(top):
        make(f"{top}/a")
        os.mkdir(f"{top}/d")
        os.link(f"{top}/a", f"{top}/d/b")
        a, b = os.stat(f"{top}/a"), os.stat(f"{top}/d/b")
        write(f"{top}/d/b", b"more", os.O_WRONLY | os.O_APPEND)
        os.unlink(f"{top}/a")
        results = [a.st_ino == b.st_ino, a.st_nlink, b.st_nlink, os.stat(f"{top}/d/b").st_nlink, read(f"{top}/d/b")]
        results += [errno_of(os.link, f"{top}/none", f"{top}/x"), errno_of(os.link, f"{top}/d", f"{top}/x"),
                    errno_of(os.link, f"{top}/d/b", f"{top}/d"), errno_of(os.link, f"{top}/d/b", "/dev/shm/x")]
        return results
    pair.both(links)


def test_a_link_into_a_directory_of_another_branch_takes_the_directory_along(union):
    b = union.branches
    (b[0] / "from").mkdir()
    write(b[0] / "from/f", b"x")
    (b[1] / "to").mkdir(mode=0o700)
    os.link(union.path / "from/f", union.path / "to/g")
    assert union.where("to/g") == [0] and os.stat(b[0] / "to").st_mode & 0o777 == 0o700
    assert os.stat(union.path / "from/f").st_ino == os.stat(union.path / "to/g").st_ino
    # Where the other branch has a file of that name (hidden by the directory), there can be none.
    (b[1] / "hiding").mkdir()
    write(b[2] / "hiding", b"hidden")
    write(b[2] / "from2", b"x")
    assert errno_of(os.link, union.path / "from2", union.path / "hiding/g") == errno.EXDEV
    for name in ("from", "to", "hiding"):
        shutil.rmtree(union.path / name)
    assert not os.path.lexists(union.path / "hiding")
    os.unlink(union.path / "from2")


def test_symlinks_are_what_they_point_to_and_no_more(pair):
    def links(top):
        make(f"{top}/f")
        for i, target in enumerate(("f", "../x/f", "/etc/passwd", "none", "l4", "x" * 4095, "é\udcff")):
            os.symlink(target, f"{top}/l{i}")
        os.mkdir(f"{top}/d")
        os.symlink("d", f"{top}/ld")
        write(f"{top}/ld/f", b"in d")
        results = [[os.readlink(f"{top}/l{i}"), os.lstat(f"{top}/l{i}").st_size, errno_of(os.stat, f"{top}/l{i}")]
                   for i in range(7)]
        return results + [read(f"{top}/d/f"), errno_of(os.symlink, "", f"{top}/e"), errno_of(os.readlink, f"{top}/f"),
                          errno_of(os.symlink, "x", f"{top}/f"), errno_of(open_close, f"{top}/l0", os.O_NOFOLLOW),
                          errno_of(os.symlink, "x" * 4096, f"{top}/e")]
    pair.both(links)


def test_a_symlink_in_a_branch_cannot_lead_the_daemon_out_of_it(area, make_union):
    outside = area.dir("outside")
    write(outside / "f", b"outside")
    u = make_union(2)
    for b in u.branches:
        (b / "evil").symlink_to(outside)
        (b / "up").symlink_to("../../outside")
    assert os.path.islink(u.path / "evil")
    for b in u.branches[:1]:  # a directory that becomes a symlink while it is known
        (u.path / "d").mkdir()
        with opened(u.path / "d", os.O_RDONLY) as fd:
            for branch in u.branches:
                if (branch / "d").is_dir():
                    (branch / "d").rename(branch / "was")
                (branch / "d").symlink_to(outside)
            with contextlib.suppress(OSError):
                write(f"/proc/self/fd/{fd}/made", b"x")
    assert sorted(os.listdir(outside)) == ["f"]


@pytest.mark.vm
def test_special_files_work(pair):
    def special(top):
        os.mkfifo(f"{top}/p")
        os.mknod(f"{top}/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        os.mknod(f"{top}/big", stat.S_IFBLK | 0o600, os.makedev(0xFFF, 0xFFFFF))
        with opened(f"{top}/p") as fd:
            os.write(fd, b"through")
            got = os.read(fd, 100)
        write(f"{top}/null", b"away", os.O_WRONLY)
        import socket
        s, c = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        os.chdir(top)
        s.bind("sock")
        s.listen()
        c.connect("sock")
        os.chdir("/")
        s.close(), c.close()
        return [got.decode(), read(f"{top}/null"), os.stat(f"{top}/big").st_rdev, os.stat(f"{top}/null").st_rdev,
                [[stat.S_IFMT(os.lstat(f"{top}/{n}").st_mode), mode(f"{top}/{n}")] for n in ("p", "null", "big", "sock")],
                [USER(errno_of, os.mknod, f"{top}/x", stat.S_IFCHR | 0o666, os.makedev(1, 3))]]
    pair.both(special)


def test_devices_and_set_id_programs_are_inert_if_the_mount_says_so(area, make_union):
    os.chmod(area.path, 0o711)
    u = make_union(2, options="nosuid,nodev")
    os.mknod(u.path / "null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
    assert errno_of(open_close, u.path / "null", os.O_RDWR) == errno.EACCES
    shutil.copy("/usr/bin/id", u.path / "id")
    os.chmod(u.path / "id", 0o4755)
    assert USER(lambda: subprocess.run([str(u.path / "id"), "-u"], capture_output=True).stdout.decode()) == "1000\n"


@pytest.mark.vm
@pytest.mark.parametrize("name", ["x" * 255, "é" * 127, "\udcff\udcfe", " ", "\n", "-rf", "...", ".hidden", "a\tb", "%s%n"])
def test_any_name_is_possible(pair, name):
    def names(top):
        p = f"{top}/{name}"
        write(p, b"x")
        os.rename(p, p + "2" if len(os.fsencode(name)) < 255 else f"{top}/y")
        os.mkdir(p)
        write(f"{p}/{name}", b"deeper")
        return [os.listdir(p), read(f"{p}/{name}"), sorted(os.listdir(top)), errno_of(write, f"{top}/{'x' * 256}", b""),
                errno_of(os.stat, f"{top}/{'x' * 256}"), errno_of(os.mkdir, f"{top}/{'x' * 1100}")]
    pair.both(names)


def test_long_paths_and_deep_directories(pair):
    def deep(top):
        home, levels = os.open(".", os.O_RDONLY), 400
        try:
            os.chdir(top)
            for _ in range(levels):  # 80,000 bytes: far more than a path may have
                os.mkdir("d" * 200)
                os.chdir("d" * 200)
            write("f", b"bottom")
            fsync_dir(".")
            content = read("f")
            os.rename("f", "../g")
            os.chdir("..")
            results = [content.decode(), sorted(os.listdir(".")), read("g").decode()]
        finally:
            os.fchdir(home)
            os.close(home)
        edge = top + "/" + "/".join(["d" * 200] * ((4095 - len(top) - 1) // 201))
        edge += "/" + "x" * (4095 - len(edge) - 1)
        write(edge, b"x")
        results.append([read(edge), errno_of(write, edge + "x", b"")])
        run("rm", "-rf", f"{top}/{'d' * 200}")
        return results
    if len(pair.top) != len(pair.plain):  # the longest path depends on it
        os.symlink(pair.top, "/dev/shm/u1")
        os.symlink(pair.plain, "/dev/shm/u2")
    try:
        pair.both(deep)
    finally:
        for n in (1, 2):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"/dev/shm/u{n}")


def test_wrong_uses_get_the_usual_errors(pair):
    def wrong(top):
        make(f"{top}/f")
        os.makedirs(f"{top}/d/e")
        make(f"{top}/d/g")
        calls = [(os.rmdir, "f"), (os.rmdir, "d"), (os.unlink, "d"), (os.mkdir, "f"), (os.mkdir, "d"), (os.mkdir, "x/y"),
                 (os.listdir, "f"), (os.stat, "f/x"), (os.stat, ""), (os.rmdir, "d/."), (os.rmdir, "d/e/.."),
                 (os.unlink, "none"), (os.rmdir, "none"), (os.truncate, "d", 0), (os.truncate, "f", -1),
                 (os.truncate, "f", 1 << 62), (open_close, "d", os.O_WRONLY), (open_close, "f", os.O_DIRECTORY),
                 (open_close, "d", os.O_CREAT), (open_close, "f", os.O_CREAT | os.O_EXCL), (open_close, "f/", os.O_RDONLY),
                 (open_close, "new/", os.O_CREAT), (os.mkdir, "d/"), (os.mkdir, ".."), (open_close, "d", O_TMPFILE)]
        results = [errno_of(fn, f"{top}/{a}", *rest) for fn, a, *rest in calls]
        for a, b in (("d", "d/e"), ("d", "d/e/x"), ("d/e", "d"), ("f", "d"), ("d", "f"), ("none", "x"), ("f", "none/x"),
                     ("f", "f"), ("d", "d"), ("d/..", "x"), ("f", "f/x"), ("f", "d/"), ("d/e", "e/")):
            results.append(errno_of(os.rename, f"{top}/{a}", f"{top}/{b}"))
        return results
    pair.both(wrong)


# ------------------------------------------------------------------------------- open files

def test_a_nameless_file_gets_a_name_once_if_it_may(pair):
    def tmpfile(top):
        results = []
        with opened(top, O_TMPFILE | os.O_RDWR, 0o640) as fd:
            os.write(fd, b"content")
            results.append([os.fstat(fd).st_nlink, os.listdir(top)])
            os.link(f"/proc/self/fd/{fd}", f"{top}/named", follow_symlinks=True)
            results.append([os.fstat(fd).st_nlink, read(f"{top}/named"), mode(f"{top}/named")])
            os.link(f"/proc/self/fd/{fd}", f"{top}/twice", follow_symlinks=True)
            results.append(errno_of(os.link, f"/proc/self/fd/{fd}", f"{top}/named", follow_symlinks=True))
        with opened(top, O_TMPFILE | os.O_RDWR | os.O_EXCL, 0o640) as fd:
            results.append(errno_of(os.link, f"/proc/self/fd/{fd}", f"{top}/never", follow_symlinks=True))
        return results + [sorted(os.listdir(top))]
    pair.both(tmpfile)


@pytest.mark.vm
def test_flags_of_open_do_what_they_say(pair):
    def flags(top):
        f, results = make(f"{top}/f", b"0123456789"), []
        with opened(f, os.O_RDWR | os.O_APPEND) as fd, opened(f, os.O_WRONLY | os.O_APPEND) as other:
            os.write(fd, b"a")
            os.write(other, b"b")
            os.lseek(fd, 0, 0)
            results += [os.write(fd, b"c"), os.pwrite(fd, b"d", 0), read(f)]
        with opened(f) as fd:  # (With passthrough, the reverse does nothing: the kernel keeps what open() said.)
            fcntl.fcntl(fd, fcntl.F_SETFL, os.O_APPEND)
            results += [os.pwrite(fd, b"f", 0), read(f)]
        results += [errno_of(open_close, f, os.O_CREAT | os.O_EXCL), errno_of(os.read, 10000, 1)]
        with opened(f, os.O_RDWR | os.O_TRUNC) as fd:
            results += [os.fstat(fd).st_size, os.write(fd, b"new"), read(f)]
        with opened(f, os.O_WRONLY) as fd:
            results.append(errno_of(os.read, fd, 1))
        with opened(f, os.O_RDONLY) as fd:
            results += [errno_of(os.write, fd, b"1"), errno_of(os.ftruncate, fd, 0)]
        for sync in (os.O_SYNC, os.O_DSYNC):
            with opened(f, os.O_WRONLY | sync) as fd:
                results += [os.write(fd, b"synced"), read(f)]
        with opened(f, os.O_PATH) as fd:
            results += [os.fstat(fd).st_size, errno_of(os.read, fd, 1), errno_of(open_close, f"/proc/self/fd/{fd}", os.O_RDWR)]
        return results
    pair.both(flags)


def test_direct_io_reads_and_writes(pair):
    def direct(top):
        block = mmap.mmap(-1, 64 * KIB)
        block.write(os.urandom(1) * 64 * KIB)
        content = bytes(block)
        with opened(f"{top}/f", os.O_RDWR | os.O_CREAT | os.O_DIRECT) as fd:
            results = [os.pwritev(fd, [block], at * 64 * KIB) for at in (0, 1, 3)]
            results.append(os.preadv(fd, [block], 0))
            assert bytes(block) == content
            results.append([os.fstat(fd).st_size, os.preadv(fd, [block], 3 * 64 * KIB), os.preadv(fd, [block], 5 * 64 * KIB)])
        data = read(f"{top}/f")
        assert data == content * 2 + bytes(64 * KIB) + content
        return results
    pair.both(direct)


@pytest.mark.vm
def test_space_is_allocated_punched_and_zeroed(pair):
    def allocate(top):
        results = []
        with opened(f"{top}/f", os.O_RDWR | os.O_CREAT) as fd:
            os.write(fd, b"x" * 200000)
            for how, offset, length in ((KEEP_SIZE, 0, 400000), (0, 0, 300000), (PUNCH_HOLE | KEEP_SIZE, 10000, 50000),
                                        (ZERO_RANGE, 100000, 5), (ZERO_RANGE | KEEP_SIZE, 290000, 50000),
                                        (PUNCH_HOLE, 0, 10), (0, -1, 5), (0, 5, 0), (0, 1 << 62, 1 << 62), (0x400, 0, 1)):
                results.append([how, errno_of(fallocate, fd, how, offset, length), os.fstat(fd).st_size,
                                os.pread(fd, 10, 9995), os.pread(fd, 10, 99998), hash(bytes(os.pread(fd, 400000, 0)))])
        return results
    pair.both(allocate)


@pytest.mark.vm
def test_data_and_holes_are_found(pair):
    def seek(top):
        results = []
        with opened(f"{top}/f", os.O_RDWR | os.O_CREAT) as fd:
            os.pwrite(fd, b"x" * 8192, 1 * MIB)
            os.ftruncate(fd, 2 * MIB)
            os.fsync(fd)
        with opened(f"{top}/f", os.O_RDONLY) as fd:
            wait_for(lambda: os.lseek(fd, 0, os.SEEK_DATA) == 1 * MIB, "hole: the kernel reports the close later")
            for whence in (os.SEEK_DATA, os.SEEK_HOLE):
                for at in (0, 1 * MIB, 1 * MIB + 5, 1 * MIB + 8192, 2 * MIB - 1, 2 * MIB, -1):
                    with contextlib.suppress(OSError):
                        results.append([whence, at, errno_of(os.lseek, fd, at, whence)])
                        results.append(os.lseek(fd, at, whence))
            results += [os.lseek(fd, -5, os.SEEK_END), os.lseek(fd, 5, os.SEEK_CUR), errno_of(os.lseek, fd, -1, 0)]
        return results
    pair.both(seek)


@pytest.mark.vm
def test_ranges_are_copied_also_between_branches(pair):
    def copies(top):
        results, content = [], os.urandom(16) * 10000
        for i in range(6):
            write(f"{top}/f{i}", content if i == 0 else b"old" * 10)
        for i in range(1, 6):  # new files go to the branch with most space: to different ones
            with opened(f"{top}/f0") as a, opened(f"{top}/f{i}") as b:
                done = 0
                while n := os.copy_file_range(a, b, 100000 - done, 5 + done, 10 + done):
                    done += n
                results.append(done)
                results.append(errno_of(os.copy_file_range, a, a, 100, 0, 50))
            assert read(f"{top}/f{i}")[10:] == content[5:100005]
        return results
    pair.both(copies)


def test_a_mapping_and_the_file_are_one(pair):
    def mapped(top):
        f, results = make(f"{top}/f", b"0" * 10000), []
        with opened(f) as fd, opened(f) as other:
            m = mmap.mmap(fd, 10000)
            m[0:5] = b"hello"
            results.append(os.pread(other, 6, 0))
            os.pwrite(other, b"WORLD", 5)
            results.append(m[0:10])
            m[9000:9005] = b"sync!"
            m.flush()
            results.append(os.pread(other, 10, 8998))
            os.fsync(other)
        m[100:103] = b"end"  # no descriptor is open any more
        m.flush()
        m.close()
        results.append(read(f)[95:105])
        with opened(f, os.O_RDONLY) as fd:
            results.append(errno_of(mmap.mmap, fd, 100))
            private = mmap.mmap(fd, 100, access=mmap.ACCESS_COPY)
            private[0:1] = b"p"
            results.append(read(f)[:5])
            private.close()
        return results
    pair.both(mapped)


def test_locks_are_seen_by_other_processes(pair):
    def locks(top):
        f, results = make(f"{top}/f", mode=0o666), []
        with opened(f) as fd:
            for lock in (fcntl.flock, fcntl.lockf):
                def attempt(how, lock=lock):
                    with opened(f) as mine:
                        return errno_of(lock, mine, how | fcntl.LOCK_NB)
                for how in (fcntl.LOCK_SH, fcntl.LOCK_EX):
                    lock(fd, how)
                    results.append([USER(attempt, fcntl.LOCK_SH), USER(attempt, fcntl.LOCK_EX)])
                lock(fd, fcntl.LOCK_UN)
                results.append(USER(attempt, fcntl.LOCK_EX))
            fcntl.lockf(fd, fcntl.LOCK_EX, 10, 5)
            results.append([USER(lambda at=at: errno_of(lambda: lock_range(f, at))) for at in (0, 4, 5, 14, 15)])
        return results + [USER(lambda: errno_of(lambda: lock_range(f, 5)))]
    pair.both(locks)


def lock_range(path, at):
    with opened(path) as fd:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)


def test_a_file_without_a_name_can_still_be_used(pair):
    def nameless(top):
        f, results = make(f"{top}/f", b"content"), []
        with opened(f) as fd, opened(f, os.O_RDONLY) as reader:
            os.unlink(f)
            os.pwrite(fd, b"C", 0)
            os.ftruncate(fd, 5)
            os.fchmod(fd, 0o640)
            os.fchown(fd, 1000, 50)
            os.utime(fd, (5, 5))
            results.append(os.fstat(reader).st_mtime)
            os.setxattr(fd, "user.a", b"b")
            fallocate(fd, 0, 0, 5000)
            st = os.fstat(reader)
            results += [st.st_size, st.st_nlink, st.st_uid, st.st_gid, st.st_mode, os.pread(reader, 5, 0),
                        os.getxattr(reader, "user.a"), errno_of(os.fsync, fd), errno_of(os.stat, f)]
            with opened(f"/proc/self/fd/{fd}") as again:
                results.append(os.pread(again, 5, 0))
            make(f, b"another")
            results += [os.pread(reader, 5, 0), read(f), os.fstat(reader).st_ino != os.stat(f).st_ino]
            results.append(errno_of(os.link, f"/proc/self/fd/{fd}", f"{top}/g", follow_symlinks=True))
        return results
    pair.both(nameless)


def test_what_was_removed_can_still_be_looked_at(pair):
    def removed(top):
        os.mkdir(f"{top}/d")
        os.symlink("x", f"{top}/l")
        os.mkfifo(f"{top}/p")
        os.mknod(f"{top}/null", stat.S_IFCHR | 0o666, os.makedev(1, 3))
        with opened(f"{top}/p") as fifo, opened(f"{top}/null") as null, opened(f"{top}/d", os.O_PATH) as d, \
                opened(f"{top}/l", os.O_PATH | os.O_NOFOLLOW) as link:
            for n in ("p", "null", "l"):
                os.unlink(f"{top}/{n}")
            os.rmdir(f"{top}/d")
            time.sleep(1.2)  # what the kernel itself knows is too old now
            results = [[stat.S_IFMT(os.fstat(fd).st_mode), os.fstat(fd).st_nlink] for fd in (fifo, null, link)]
            results += [stat.S_ISDIR(os.fstat(d).st_mode), os.readlink("", dir_fd=link)]
            os.fchmod(fifo, 0o600)
            results += [stat.S_IMODE(os.fstat(fifo).st_mode), errno_of(write, f"/proc/self/fd/{d}/new", b"")]
        return results
    pair.both(removed)


@pytest.mark.vm
def test_times_are_set_and_kept(pair):
    def times(top):
        results = []
        os.mkdir(f"{top}/d")
        os.symlink("x", f"{top}/l")
        for p in (make(f"{top}/f"), f"{top}/d", f"{top}/l"):
            for t in ((0, 0), (1234567890123456789, 987654321012345678), (-5 * 10 ** 9, 5), (2 ** 33 * 10 ** 9 + 7, 1)):
                os.utime(p, ns=t, follow_symlinks=False)
                st = os.lstat(p)
                results.append([st.st_atime_ns, st.st_mtime_ns])
            os.utime(p, ns=(7, 7), follow_symlinks=False)
            before = time.time()
            if not p.endswith("l"):
                os.chmod(p, 0o700)
            os.utime(p, follow_symlinks=False)
            results.append(abs(os.lstat(p).st_mtime - before) < 60)
        make(f"{top}/d/f")  # which changes d
        results.append(abs(os.stat(f"{top}/d").st_mtime - time.time()) < 60)
        with opened(f"{top}/f") as fd:
            os.utime(fd, ns=(9, 9))
            results.append(os.fstat(fd).st_mtime_ns)
            os.write(fd, b"x")
            results.append(os.fstat(fd).st_mtime_ns > 9)
        results.append(os.stat(f"{top}/f").st_mtime_ns > 9)
        return results
    pair.both(times)


def test_fsync_of_everything_succeeds(pair):
    def syncs(top):
        os.makedirs(f"{top}/a/b")
        with opened(f"{top}/a/b/f", os.O_CREAT | os.O_RDWR) as fd:
            os.write(fd, b"x")
            os.fsync(fd)
            os.fdatasync(fd)
        with opened(f"{top}/a/b/f", os.O_RDONLY) as fd:
            os.fsync(fd)
            libc.syncfs(fd)
        for d in ("a/b", "a", "."):
            fsync_dir(f"{top}/{d}")
    pair.both(syncs)


# -------------------------------------------------------------------------------- programs

@pytest.mark.vm
def test_programs_run_and_cannot_be_written_meanwhile(pair):
    def programs(top):
        shutil.copy("/usr/bin/sleep", f"{top}/sleep")
        p = subprocess.Popen([f"{top}/sleep", "60"])
        try:
            os.utime(f"{top}/sleep")
            results = [errno_of(open_close, f"{top}/sleep", flags)
                       for flags in (os.O_WRONLY, os.O_RDWR | os.O_TRUNC, os.O_RDONLY)]
            results.append(errno_of(os.truncate, f"{top}/sleep", 0))
            os.unlink(f"{top}/sleep")
            results.append(p.poll())
        finally:
            p.kill()
            p.wait()
        shutil.copy("/usr/bin/true", f"{top}/true")
        results.append(subprocess.run([f"{top}/true"]).returncode)
        with opened(f"{top}/true", os.O_WRONLY):
            results.append(errno_of(subprocess.run, [f"{top}/true"]))
        os.chmod(f"{top}/true", 0o644)
        results.append(errno_of(subprocess.run, [f"{top}/true"]))
        write(f"{top}/script", b"#!/bin/sh\necho $0 ran\n", mode=0o755)
        return results + [run(f"{top}/script").stdout.endswith(b"script ran\n")]
    pair.both(programs)


def test_a_set_user_id_program_runs_as_its_owner(pair):
    def programs(top):
        shutil.copy("/usr/bin/id", f"{top}/id")
        os.chown(f"{top}/id", 1001, 50)
        os.chmod(f"{top}/id", 0o6755)
        return USER(lambda: [subprocess.run([f"{top}/id", how], capture_output=True).stdout.decode() for how in ("-u", "-g")])
    assert pair.both(programs) == ["1001\n", "50\n"]


IN_ALL = 0xFFF


@pytest.mark.vm
def test_inotify_tells_of_what_is_done_in_the_union(pair):
    def watch(top):
        os.mkdir(f"{top}/d")
        fd = libc.inotify_init1(os.O_NONBLOCK)
        try:
            assert libc.inotify_add_watch(fd, os.fsencode(f"{top}/d"), IN_ALL & ~0x30) > 0
            write(f"{top}/d/f", b"x")
            os.chmod(f"{top}/d/f", 0o600)
            os.rename(f"{top}/d/f", f"{top}/d/g")
            os.rename(f"{top}/d/g", f"{top}/h")
            os.mkdir(f"{top}/d/sub")
            os.rmdir(f"{top}/d/sub")
            os.rename(f"{top}/h", f"{top}/d/h")
            os.unlink(f"{top}/d/h")
            select.select([fd], [], [], 1)
            data, events, at = os.read(fd, 65536), [], 0
            while at < len(data):
                _, what, _, n = struct.unpack_from("iIII", data, at)
                events.append([what, data[at + 16:at + 16 + n].rstrip(b"\0").decode()])
                at += 16 + n
            return events
        finally:
            os.close(fd)
    assert len(pair.both(watch)) >= 10
