"""Directories that lie on several branches, space, policies, and branches that misbehave."""

import concurrent.futures
import ctypes
import errno
import mmap
import os
import resource
import shutil
import stat
import subprocess
import threading
import time

import pytest

from disk_util import mount_image
import fault_util
from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import (ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, As, KIB, MIB, SLOW, UNION_FS,
                          Union, acl, errno_of, fsync_dir, libc, read, run, wait_for, write)

USER = As(1000, 1000)
SYS_getdents64 = 217


def fill(path, size):
    with open(path, "wb") as f:
        os.posix_fallocate(f.fileno(), 0, size)


def remount(branch, how):
    """It is busy until the last close has arrived."""
    wait_for(lambda: run("mount", "-o", f"remount,{how}", branch.parent, check=False).returncode == 0, f"remount,{how}")


def on_all(union, name):
    """A directory that all branches have; made behind the union's back."""
    for b in union.branches:
        (b / name).mkdir()
    return union.path / name


# --------------------------------------------------------------------------- reading directories

def getdents(fd, size=32768):
    """One call: [(name, position after it)]."""
    buf = ctypes.create_string_buffer(size)
    n = libc.syscall(SYS_getdents64, fd, buf, size)
    if n < 0:
        raise OSError(ctypes.get_errno(), "getdents64")
    out, at = [], 0
    while at < n:
        off = int.from_bytes(buf.raw[at + 8:at + 16], "little")
        length = int.from_bytes(buf.raw[at + 16:at + 18], "little")
        out.append((os.fsdecode(buf.raw[at + 19:at + length].split(b"\0")[0]), off))
        at += length
    return out


def all_dents(fd):
    out = []
    while got := getdents(fd):
        out += got
    return out


def test_a_merged_directory_of_many_shows_each_name_once(make_union):
    u = make_union(3)
    d = on_all(u, "d")
    for i in range(10000):
        (os.mkdir if i % 50 == 0 else os.mknod)(u.branches[i % 3] / f"d/n{i}")
    for b in u.branches:
        (b / "d/common").mkdir()
        write(b / "d/hidden", b"")
    names = os.listdir(d)
    assert len(names) == len(set(names)) == 10002
    assert set(names) == {f"n{i}" for i in range(10000)} | {"common", "hidden"}
    for e in os.scandir(d):
        assert e.is_dir() == (e.name == "common" or e.name[1:].isdigit() and int(e.name[1:]) % 50 == 0)
        if e.name in ("common", "hidden", "n0", "n1"):
            assert e.inode() == e.stat().st_ino == os.stat(e.path).st_ino


def test_positions_in_a_directory_keep_their_meaning(make_union):
    u = make_union(2)
    d = on_all(u, "d")
    for i in range(500):
        write(d / f"n{i}", b"")
    fd = os.open(d, os.O_RDONLY)
    try:
        dents = all_dents(fd)
        assert [n for n, _ in dents[:2]] == [".", ".."] and len(dents) == 502
        for i in (0, 1, 100, 250, 500):
            os.lseek(fd, dents[i][1], os.SEEK_SET)
            assert getdents(fd)[0] == dents[i + 1]
        for i in range(0, 500, 2):  # what was seen is removed: the rest must come all the same
            os.unlink(d / dents[i + 2][0])
        os.lseek(fd, dents[300][1], os.SEEK_SET)
        assert {n for n, _ in dents[301:] if os.path.lexists(d / n)} <= {n for n, _ in all_dents(fd)}
        os.lseek(fd, 0, os.SEEK_SET)
        assert len(all_dents(fd)) == 252
        for position in (10 ** 6, 2 ** 62):
            os.lseek(fd, position, os.SEEK_SET)
            assert getdents(fd) == []
        os.lseek(fd, 0, os.SEEK_SET)
        with pytest.raises(OSError):
            getdents(fd, 10)
    finally:
        os.close(fd)


def test_what_stays_is_listed_exactly_once_while_other_names_come_and_go(make_union, passthrough):
    u = make_union(3, passthrough=passthrough)
    d = on_all(u, "d")
    stay = {f"stay{i}" for i in range(700)}
    for n in stay:
        write(d / n, b"")
    end = threading.Event()

    def change():
        i = 0
        while not end.is_set():
            write(d / f"c{i % 50}", b"")
            os.rename(d / f"c{i % 50}", d / f"r{i % 50}")
            if i % 3:
                os.unlink(d / f"r{i % 50}")
            i += 1
    with concurrent.futures.ThreadPoolExecutor() as pool:
        changes = pool.submit(change)
        try:
            for _ in range(40):
                names = os.listdir(d)
                assert len(names) == len(set(names))
                assert stay <= set(names)
        finally:
            end.set()
        changes.result()


# ------------------------------------------------------------- directories on several branches

@pytest.mark.vm
def test_all_copies_of_a_directory_agree(area, make_union):
    os.chmod(area.path, 0o711)
    u = make_union(3)
    d = on_all(u, "d")
    rights = acl((ACL_USER_OBJ, 7, -1), (ACL_USER, 5, 1000), (ACL_GROUP_OBJ, 5, -1), (ACL_MASK, 7, -1), (ACL_OTHER, 0, -1))
    os.chown(d, 1000, 50)
    os.chmod(d, 0o2750)
    os.setxattr(d, "user.a", b"value")
    os.setxattr(d, "system.posix_acl_default", rights)
    os.setxattr(d, "system.posix_acl_access", rights)
    os.utime(d, ns=(5, 7))

    def look(path):
        st = os.stat(path)
        return (st.st_mode, st.st_uid, st.st_gid, st.st_mtime_ns, {n: os.getxattr(path, n) for n in os.listxattr(path)})
    for b in u.branches:
        assert look(b / "d") == look(d)
    os.removexattr(d, "user.a")
    os.removexattr(d, "system.posix_acl_default")
    USER(os.chmod, d, 0o700)
    for b in u.branches:
        assert look(b / "d") == look(d)
    # Whatever is made in whichever copy inherits the same.
    os.chmod(d, 0o2770)
    for i in range(6):
        fill(d / f"f{i}", 3 * MIB)
    assert len({i for n in range(6) for i in u.where(f"d/f{n}")}) == 3
    assert {os.stat(d / f"f{i}").st_gid for i in range(6)} == {50}
    assert os.stat(d).st_nlink == 1 and os.path.samefile(d, d / "." / ".." / "d")


def test_a_change_that_fails_on_one_branch_is_not_inherited_from_another(area, make_union):
    """Of three copies the last cannot be changed; the one before was, and must not keep it."""
    disks = [area.disk() for _ in range(3)]
    for disk in disks:
        (disk / "d").mkdir()
        os.chmod(disk / "d", 0o2755)
        time.sleep(0.02)  # the first is the oldest: it speaks for the directory
    u = make_union(branches=disks, options="policy=mfs")
    write(u.path / "d/aligned", b"")
    fill(disks[0] / "big", 30 * MIB)
    fill(disks[2] / "big", 20 * MIB)
    write(u.path / "d/on1", b"")
    assert u.where("d/on1") == [1]
    remount(disks[2], "ro")
    assert errno_of(os.chown, u.path / "d", -1, 50) == errno.EROFS
    assert errno_of(os.setxattr, u.path / "d", "user.a", b"b") == errno.EROFS
    time.sleep(1.1)
    assert os.stat(u.path / "d").st_gid == 0
    write(u.path / "d/new", b"")
    assert u.where("d/new") == [1] and os.stat(u.path / "d/new").st_gid == 0
    assert os.listxattr(disks[1] / "d") == []
    remount(disks[2], "rw")


def limit_fds(union, free):
    """Lets the union's process open so many more descriptors; None: as before."""
    pid = union.process.pid
    hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
    if free is None:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
        return
    used = {int(n) for n in os.listdir(f"/proc/{pid}/fd")}
    limit = 0
    while free >= 0:  # the lowest free numbers are taken first
        free -= limit not in used
        limit += 1
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (limit - 1, hard))


def test_a_copy_that_cannot_be_looked_at_for_a_moment_is_not_forgotten(make_union):
    u = make_union(3, options="cache.entry=3600,cache.attr=3600")
    for i in range(6):
        on_all(u, f"d{i}")
        for k, b in enumerate(u.branches):
            write(b / f"d{i}/f{k}", b"")
    os.stat(u.path)
    for i in range(6):
        limit_fds(u, i)
        errno_of(os.stat, u.path / f"d{i}")
        limit_fds(u, None)
        assert sorted(os.listdir(u.path / f"d{i}")) == ["f0", "f1", "f2"], f"{i} descriptors"


def test_a_directory_is_not_removed_while_a_copy_cannot_be_looked_at(make_union):
    u = make_union(3)
    for i in range(10):
        on_all(u, f"d{i}")
        write(u.branches[2] / f"d{i}/f", b"")
        os.stat(u.path / f"d{i}")
        limit_fds(u, i)
        result = errno_of(os.rmdir, u.path / f"d{i}")
        limit_fds(u, None)
        assert result in (errno.EMFILE, errno.ENOTEMPTY), i
        assert u.where(f"d{i}") == [0, 1, 2], i
    assert result == errno.ENOTEMPTY


def test_descriptors_of_directories_are_limited(area, make_union):
    """More directories than there may be descriptors."""
    branches = [area.disk() for _ in range(2)]
    for b in branches:
        for i in range(400):
            (b / f"d{i}").mkdir()
    path = area.dir("m")
    u = make_union(branches=branches, target=path, args=[
        "prlimit", "--nofile=256:256", "setpriv", "--bounding-set", "-sys_resource", "--inh-caps", "-sys_resource",
        UNION_FS, "-f", ":".join(map(str, branches)), path])
    assert resource.prlimit(u.process.pid, resource.RLIMIT_NOFILE)[1] == 256
    for _ in range(2):
        assert sum(e.stat().st_nlink for e in os.scandir(path)) == 400
        assert len(os.listdir(f"/proc/{u.process.pid}/fd")) < 200
    for i in range(400):
        write(path / f"d{i}/f", b"")
    assert sum(len(files) for _, _, files in os.walk(path)) == 400


def test_a_very_deep_directory_is_cloned_and_synced(area, make_union):
    """Deeper than a thread's stack would allow if each level needed some of it."""
    disks = [area.disk(400 * MIB), area.disk(400 * MIB)]
    fill(disks[1] / "big", 250 * MIB)
    depth = 20000 // SLOW
    u = make_union(branches=disks)
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(u.path)
        for _ in range(depth):
            os.mkdir("d")
            os.chdir("d")
        os.unlink(disks[1] / "big")
        begin = time.monotonic()
        write("f", b"x")
        fsync_dir(".")
        took = time.monotonic() - begin
        assert read("f") == b"x"
        assert took < 10 * SLOW, f"{took} s"
    finally:
        os.fchdir(home)
        os.close(home)
    deepest = 0
    fd = os.open(disks[1], os.O_RDONLY)
    while True:
        try:
            below = os.open("d", os.O_RDONLY, dir_fd=fd)
        except FileNotFoundError:
            break
        os.close(fd)
        fd, deepest = below, deepest + 1
    assert deepest == depth and os.listdir(fd) == ["f"]
    os.close(fd)
    u.stop()


def test_a_directory_too_deep_for_an_intent_is_not_renamed(make_server):
    s = make_server(2, size=64 * MIB)
    home = os.open(".", os.O_RDONLY)
    try:
        os.chdir(s.path)
        for _ in range(720):
            os.mkdir("\t" * 250)
            os.chdir("\t" * 250)
        os.mkdir("d")
        for i in range(4):  # on both branches
            fill(f"d/f{i}", 4 * MIB)
        assert errno_of(os.rename, "d", "e") == errno.EXDEV
        assert sorted(os.listdir("d")) == ["f0", "f1", "f2", "f3"]
    finally:
        os.fchdir(home)
        os.close(home)
    s.restart()


# ------------------------------------------------------------------------------------- space

def space(path):
    st = os.statvfs(path)
    return [n * st.f_frsize for n in (st.f_blocks, st.f_bfree, st.f_bavail)] + [st.f_files, st.f_ffree]


def test_the_unions_space_is_the_sum_of_the_branches(area, make_union):
    u = make_union(branches=[area.disk(48 * MIB), area.disk(96 * MIB), area.disk(400 * MIB, "xfs")])
    write(u.path / "f", b"x" * MIB)
    os.sync()
    assert space(u.path) == [sum(n) for n in zip(*(space(b) for b in u.branches))]
    assert os.statvfs(u.path).f_namemax == 255


def test_branches_on_one_filesystem_are_counted_once(area, make_union):
    d = area.disk()
    (d / "a").mkdir()
    (d / "b").mkdir()
    u = make_union(branches=[d / "a", d / "b"])
    assert space(u.path) == space(d)


def test_new_files_go_where_most_space_is_and_enospc_comes_when_all_are_full(area, make_union):
    u = make_union(branches=[area.disk(24 * MIB), area.disk(32 * MIB), area.disk(48 * MIB)])
    result = n = 0
    while True:
        result = errno_of(fill, u.path / f"f{n}", MIB)
        if result:
            break
        n += 1
    assert result == errno.ENOSPC and n > 70
    assert {i for k in range(n) for i in u.where(f"f{k}")} == {0, 1, 2}
    assert all(os.statvfs(b).f_bavail * os.statvfs(b).f_frsize < 2 * MIB for b in u.branches)
    os.unlink(u.path / f"f{n}")
    for k in range(6):
        os.unlink(u.path / f"f{k}")
    fill(u.path / "again", MIB)


def test_a_branch_without_inodes_gives_way_to_the_next(area, make_union):
    few = area.path / "few.img"
    with open(few, "wb") as f:
        f.truncate(64 * MIB)
    run("mkfs.ext4", "-q", "-N", "16", few)
    point = area.dir("few")
    mount_image(few, point)
    (point / "d").mkdir()
    u = make_union(branches=[point / "d", area.disk(32 * MIB)])
    for i in range(40):
        write(u.path / f"f{i}", b"x")
        os.mkdir(u.path / f"d{i}")
        os.symlink("x", u.path / f"l{i}")
    assert u.where("f0") == [0] and u.where("f39") == [1] and u.where("d39") == [1] and u.where("l39") == [1]


def test_a_file_on_a_full_branch_cannot_grow_but_others_can_be_made(area, make_union, passthrough):
    u = make_union(branches=[area.disk(48 * MIB), area.disk(24 * MIB)], passthrough=passthrough)
    fd = os.open(u.path / "f", os.O_RDWR | os.O_CREAT)
    assert u.where("f") == [0]
    fill(u.branches[0] / "big", os.statvfs(u.branches[0]).f_bavail * os.statvfs(u.branches[0]).f_frsize - 64 * KIB)
    with pytest.raises(OSError) as e:
        for i in range(100):
            os.pwrite(fd, b"x" * 64 * KIB, i * 64 * KIB)
    assert e.value.errno == errno.ENOSPC
    os.close(fd)
    write(u.path / "g", b"x" * MIB)
    assert u.where("g") == [1]


def test_space_that_is_reserved_for_root_is_not_for_others(area, make_union, passthrough):
    os.chmod(area.path, 0o711)
    disk = area.path / "r.img"
    with open(disk, "wb") as f:
        f.truncate(32 * MIB)
    run("mkfs.ext4", "-q", "-m", "40", disk)
    point = area.dir("r")
    run("mount", "-o", "loop", disk, point)
    (point / "d").mkdir()
    u = make_union(branches=[point / "d"], passthrough=passthrough)
    os.chmod(u.path, 0o777)
    left = os.statvfs(u.path).f_bavail * os.statvfs(u.path).f_frsize

    def grow(how):
        fd = os.open(u.path / how, os.O_RDWR | os.O_CREAT)
        try:
            for i in range(30):
                if how == "fallocate":
                    os.posix_fallocate(fd, i * MIB, MIB)
                elif how == "write":
                    os.pwrite(fd, b"x" * MIB, i * MIB)
                else:
                    source = os.open("/proc/self/exe", os.O_RDONLY)
                    os.sendfile(fd, source, 0, MIB)
                    os.close(source)
        except OSError as e:
            return [e.errno, os.fstat(fd).st_size]
        finally:
            os.close(fd)
        return [0, 30 * MIB]
    for how in ("write", "fallocate", "sendfile"):
        result, size = USER(grow, how)
        assert result == errno.ENOSPC and size <= left + MIB, how
        os.unlink(u.path / how)
        os.sync()
    # As root; with passthrough the kernel writes as nobody.
    assert (grow("write")[1] > left + 4 * MIB) == (passthrough == "off")


def test_a_removed_directory_uncovers_no_file(make_union):
    u = make_union(n=3)
    (u.branches[0] / "x").mkdir()
    write(u.branches[1] / "x", b"hidden")
    os.symlink("hidden", u.branches[2] / "x")
    write(u.branches[0] / "x/f", b"")
    assert errno_of(os.rmdir, u.path / "x") == errno.ENOTEMPTY and u.where("x") == [0, 1, 2]
    os.unlink(u.path / "x/f")
    os.rmdir(u.path / "x")
    assert not u.where("x") and errno_of(os.stat, u.path / "x") == errno.ENOENT
    os.mkdir(u.path / "x")


def test_branches_below_the_minimum_get_nothing_new(area, make_union):
    u = make_union(branches=[area.disk(96 * MIB), area.disk(48 * MIB)], options="minfreespace=40M")
    write(u.path / "a", b"")
    assert u.where("a") == [0]
    fill(u.branches[0] / "big", 60 * MIB)
    assert errno_of(write, u.path / "b", b"") == errno.ENOSPC
    assert errno_of(os.mkdir, u.path / "d") == errno.ENOSPC
    os.link(u.path / "a", u.path / "a2")
    os.rename(u.path / "a2", u.path / "a3")
    write(u.path / "a3", b"what is there can be written")
    os.unlink(u.branches[0] / "big")
    write(u.path / "b", b"")


def test_epmfs_stays_where_the_directory_is_and_mfs_does_not(area, make_union):
    for policy, expected in (("mfs", [1]), ("epmfs", [0])):
        disks = [area.disk(32 * MIB), area.disk(64 * MIB)]
        (disks[0] / "d").mkdir()
        u = make_union(branches=disks, options=f"policy={policy}")
        write(u.path / "d/f", b"")
        assert u.where("d/f") == expected
        os.makedirs(u.path / "d/e/g")
        assert u.where("d/e/g") == expected
        write(u.path / "top", b"")
        assert u.where("top") == [1]
        if policy == "epmfs":
            fill(disks[0] / "big", os.statvfs(disks[0]).f_bavail * os.statvfs(disks[0]).f_frsize)
            assert errno_of(fill, u.path / "d/more", MIB) == errno.ENOSPC


# ----------------------------------------------------------------- branches that are read-only

def test_a_branch_that_became_read_only_gets_nothing_and_says_erofs(make_union, passthrough):
    u = make_union(2, passthrough=passthrough)
    d = on_all(u, "d")
    fill(u.branches[1] / "big", 20 * MIB)
    write(d / "f", b"x")
    assert u.where("d/f") == [0]
    remount(u.branches[0], "ro")
    calls = [(os.unlink, d / "f"), (os.chmod, d / "f", 0o600), (os.truncate, d / "f", 0), (write, d / "f", b""),
             (os.rename, d / "f", d / "g"), (os.link, d / "f", d / "g"), (os.setxattr, d / "f", "user.a", b""),
             (os.utime, d / "f"), (os.chmod, d, 0o700), (os.rmdir, d), (os.rename, d, u.path / "e")]
    write(d / "new", b"goes to the other one")
    assert u.where("d/new") == [1]
    assert errno_of(*calls[-2]) == errno.ENOTEMPTY
    os.unlink(d / "new")
    for fn, *args in calls[:-2]:
        assert errno_of(fn, *args) == errno.EROFS, fn
    assert errno_of(*calls[-1]) == errno.EROFS
    assert read(d / "f") == b"x" and os.listdir(d) == ["f"]
    assert stat.S_IMODE(os.stat(d).st_mode) == 0o755
    os.mkdir(u.path / "newdir")
    assert u.where("newdir") == [1]
    remount(u.branches[0], "rw")
    os.rename(d, u.path / "e")
    assert u.where("e") == [0, 1] and read(u.path / "e/f") == b"x"


def test_nothing_changes_on_a_branch_that_is_declared_read_only(area, make_union):
    disks = [area.disk(), area.disk()]
    write(disks[0] / "f", b"content")
    u = make_union(branches=[f"{disks[0]}=RO", disks[1]], options="cache.negative_entry=3600")
    for flags in (os.O_WRONLY, os.O_RDWR, os.O_RDONLY | os.O_TRUNC, os.O_RDWR | os.O_CREAT, os.O_WRONLY | os.O_TRUNC):
        assert errno_of(os.open, u.path / "f", flags) == errno.EROFS, flags
    # One that the kernel believes to be absent.
    assert errno_of(os.stat, u.path / "g") == errno.ENOENT
    write(disks[0] / "g", b"content")
    for flags in (os.O_WRONLY | os.O_CREAT, os.O_RDONLY | os.O_CREAT | os.O_TRUNC):
        assert errno_of(os.open, u.path / "g", flags) == errno.EROFS, flags
    assert read(disks[0] / "f") == read(disks[0] / "g") == b"content"


# ------------------------------------------------------------------------------------- security

def test_a_file_that_appears_behind_the_kernels_back_is_opened_by_its_permissions(area, make_union):
    os.chmod(area.path, 0o711)
    u = make_union(2, options="cache.negative_entry=3600")
    os.chmod(u.path, 0o777)
    assert USER(errno_of, os.stat, u.path / "secret") == errno.ENOENT
    write(u.branches[1] / "secret", b"secret", mode=0o600)
    for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY | os.O_TRUNC):
        assert USER(errno_of, os.open, u.path / "secret", flags | os.O_CREAT) == errno.EACCES
    fd = os.open(u.path / "secret", os.O_RDWR | os.O_CREAT)
    assert os.read(fd, 10) == b"secret"
    os.close(fd)
    write(u.branches[0] / "mine", b"x", mode=0o600)
    assert errno_of(os.open, u.path / "mine", os.O_CREAT | os.O_EXCL) == errno.EEXIST


def test_dots_do_not_lead_out_of_the_union(make_union):
    u = make_union(2)
    d = on_all(u, "d")
    assert os.path.samefile(d / "..", u.path) and os.path.samefile(u.path / "../", u.path.parent)
    fd = os.open(d, os.O_RDONLY)
    for b in u.branches:  # moved out of what is merged, by somebody else
        (b / "d").rename(b.parent / "outside")
    names = []
    for path in (f"/proc/self/fd/{fd}/..", f"/proc/self/fd/{fd}/../.."):
        names += [n for n in (os.listdir(path) if not errno_of(os.listdir, path) else [])]
    assert "lost+found" not in names
    os.close(fd)


def test_a_program_starts_with_its_standard_descriptors_closed(area, make_union):
    branches, path = [area.disk(), area.disk()], area.dir("m")
    u = make_union(branches=branches, target=path, args=[
        "sh", "-c", 'exec "$0" "$@" <&- >&- 2>&-', UNION_FS, "-f", "-v", "-o", "cache.entry=0", ":".join(map(str, branches)),
        path])
    for i in range(20):
        write(path / f"f{i}", b"x" * 100)
    fds = [os.open(path / f"f{i}", os.O_RDWR) for i in range(20)]
    for i, fd in enumerate(fds):
        os.fstat(fd)
        os.close(fd)
    assert {read(path / f"f{i}") for i in range(20)} == {b"x" * 100}
    assert {os.readlink(f"/proc/{u.process.pid}/fd/{n}") for n in range(3)} == {"/dev/null"}


# ----------------------------------------------------------------------------- disks that fail

def damage(image, name):
    """Makes all but the first 12 blocks of a file unreadable."""
    blocks = run("debugfs", "-R", f"stat {name}", image).stdout.decode()
    run("debugfs", "-w", "-R", f"zap_block -p 255 {blocks.split('(IND):')[1].split(',')[0]}", image)


@pytest.mark.parametrize("readahead", [False, True])
@pytest.mark.parametrize("how", ["auto", "off"])
def test_an_error_in_the_middle_of_a_file_is_not_taken_for_its_end(area, make_server, how, readahead):
    image, point = area.path / "bad.img", area.dir("bad")
    with open(image, "wb") as f:
        f.truncate(64 * MIB)
    run("mkfs.ext4", "-q", "-b", "4096", "-O", "^extent,^has_journal,^metadata_csum,^64bit", image)
    run("mount", "-o", "loop", image, point)
    os.rmdir(point / "lost+found")
    other = area.disk(32 * MIB)
    s = make_server(branches=[{"directory": str(point)}, {"directory": str(other)}], args=(f"--passthrough={how}",))
    content = b"".join(bytes([65 + i]) * 4096 for i in range(24))
    write(s.path / "f", content)
    s.stop()
    run("umount", point)
    damage(image, "/union/f")
    run("mount", "-o", "loop", image, point)
    s.start()
    for flags in (os.O_RDONLY, os.O_RDONLY | os.O_DIRECT):
        fd = os.open(s.path / "f", flags)
        buf, at = mmap.mmap(-1, 96 * KIB if readahead else 8192), 0
        try:
            with pytest.raises(OSError) as e:
                while got := os.preadv(fd, [buf], at):  # (whole blocks, and then the error, and never an end)
                    assert buf[:got] == content[at:at + got] and at + got <= 12 * 4096
                    at += got
            assert e.value.errno in (errno.EIO, errno.EUCLEAN)
            assert errno_of(os.preadv, fd, [buf], 15 * 4096) in (errno.EIO, errno.EUCLEAN)
        finally:
            os.close(fd)
        assert os.stat(s.path / "f").st_size == 24 * 4096


def test_a_branch_inside_the_union_is_refused_or_harmless(area, make_union):
    """The union is mounted below one of its own branches."""
    d = area.disk()
    (d / "m").mkdir()
    u = make_union(branches=[d, area.disk()], target=d / "m")
    write(u.path / "f", b"x")
    assert errno_of(os.stat, u.path / "m") in (0, errno.ELOOP)
    assert "f" in os.listdir(u.path)
    shutil.rmtree(u.path / "m", ignore_errors=True)
    assert run("find", u.path, check=False).returncode in (0, 1)


@pytest.mark.vm
def test_a_mapping_keeps_the_file_after_it_was_closed_and_removed(make_union, passthrough):
    u = make_union(2, passthrough=passthrough)
    fd = os.open(u.path / "f", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, MIB)
    m = mmap.mmap(fd, MIB)
    os.close(fd)
    m[0:5] = b"first"
    os.unlink(u.path / "f")
    m[MIB - 5:] = b"after"
    m.flush()
    assert m[0:5] == b"first" and m[MIB - 5:] == b"after"
    m.close()
    wait_for(lambda: all("f (deleted)" not in os.readlink(p) for p in fd_links(u)), "closed descriptor")


def fd_links(u):
    return [f"/proc/{u.process.pid}/fd/{n}" for n in os.listdir(f"/proc/{u.process.pid}/fd")
            if os.path.lexists(f"/proc/{u.process.pid}/fd/{n}")]


def test_no_descriptor_is_left_behind(make_union, passthrough):
    u = make_union(2, passthrough=passthrough)
    on_all(u, "d")

    def use():
        for i in range(30):
            write(u.path / f"d/f{i}", b"x")
            assert errno_of(os.open, u.path / f"d/f{i}", os.O_CREAT | os.O_EXCL) == errno.EEXIST
            assert errno_of(os.mkdir, u.path / f"d/f{i}") == errno.EEXIST
            assert errno_of(os.link, u.path / f"d/f{i}", u.path / f"d/f{i}") == errno.EEXIST
            assert errno_of(os.open, u.path / "d/none", os.O_RDONLY) == errno.ENOENT
            os.mkfifo(u.path / "d/p")
            os.rename(u.path / f"d/f{i}", u.path / f"d/g{i}")
            assert errno_of(os.getxattr, u.path / "d", "user.none") == errno.ENODATA
            os.unlink(u.path / "d/p")
            os.unlink(u.path / f"d/g{i}")
        return len(os.listdir(f"/proc/{u.process.pid}/fd"))
    use()
    before = use()
    wait_for(lambda: use() <= before, "stable number of descriptors", 10)


def test_a_killed_program_leaves_its_request_to_be_finished(area, make_union):
    u = make_union(2)
    for i in range(30):
        p = subprocess.Popen(["sh", "-c", f"while :; do echo x >{u.path}/f{i}; mv {u.path}/f{i} {u.path}/g{i}; "
                                          f"mkdir {u.path}/d; rmdir {u.path}/d; ls -l {u.path}; done"],
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        time.sleep(0.03)
        os.killpg(p.pid, 9)
        p.wait()
    run("rm", "-rf", *u.path.iterdir())
    assert os.listdir(u.path) == []


def test_a_new_directorys_first_file_on_a_lower_branch_does_not_change_its_number(area, make_union):
    """Both copies are made within one tick of the clock."""
    disks = [area.disk() for _ in range(2)]
    u = make_union(branches=disks)
    fill(disks[0] / "big", 8 * MIB)
    os.mkdir(u.path / "top")
    os.truncate(disks[0] / "big", 0)
    for i in range(100):
        d = u.path / f"top/d{i}"
        fill(disks[0] / "big", 8 * MIB)
        os.mkdir(d)
        os.truncate(disks[0] / "big", 0)
        before = os.stat(d)
        write(d / "f", b"")
        assert u.where(f"top/d{i}") == [0, 1], i
        fd = os.open(d, os.O_RDONLY)  # its attributes come from the union, not from the kernel's cache
        after = [os.fstat(fd), os.stat(d)]
        os.close(fd)
        assert {st.st_ino for st in after} == {before.st_ino}, i
    u.restart()
    for i in range(100):
        assert os.stat(u.path / f"top/d{i}").st_ino >> 48 == 1, i


def test_a_clone_that_was_not_completed_does_not_speak_for_its_directory(area):
    """The server is killed at each step of a clone that is made right after the directory itself."""
    disks = [area.disk() for _ in range(2)]
    faults = fault_util.Faults(area.path / "faults")
    u = Union(area, disks, env=faults.env()).start()

    def make(name, call, n):
        fill(disks[0] / "big", 8 * MIB)
        os.mkdir(u.path / name, 0o755)
        os.truncate(disks[0] / "big", 0)
        faults.arm(fault_util.KILL, n, program="union-fs", only=call)
        os.close(os.open(u.path / name / "f", os.O_CREAT | os.O_WRONLY, 0o666))

    def is_killed_at(call, n):
        name = f"{call}{n}"
        failed = errno_of(make, name, call, n)
        wait_for(lambda: faults.fired or not failed, "kill")
        killed = faults.fired
        faults.disarm()
        if killed:
            u.process.wait()
            run("umount", "-l", u.path)
            u.start()
        assert os.stat(u.path / name).st_mode & 0o7777 == 0o755, (call, n)
        write(u.path / name / "g", b"")
        for b in u.where(name):
            assert os.stat(disks[b] / name).st_mode & 0o7777 == 0o755, (call, n)
        return killed
    for call in ("mkdirat", "chmod", "fchownat", "utimensat", "openat64"):
        # How often some are called depends on the clock, but not that the last ones are.
        kills = next(n for n in range(30) if not is_killed_at(call, n + 1))
        assert kills or call == "fchownat", call
    u.stop()


def test_cloning_does_not_set_back_the_parents_time_when_something_is_made_in_it(area, make_union):
    disks = [area.disk() for _ in range(2)]
    u = make_union(branches=disks)
    os.mkdir(u.path / "p")
    write(u.path / "p/on0", b"")
    fill(disks[0] / "big", 8 * MIB)
    write(u.path / "p/on1", b"")
    assert u.where("p") == [0, 1]
    n = 150
    os.unlink(disks[0] / "big")
    fill(disks[1] / "big", 8 * MIB)
    for i in range(n):
        os.mkdir(u.path / f"p/d{i}")
    os.unlink(disks[1] / "big")
    fill(disks[0] / "big", 8 * MIB)
    started = threading.Barrier(2)

    def clone():
        for i in range(n):
            started.wait()
            write(u.path / f"p/d{i}/f", b"")
    t = threading.Thread(target=clone)
    t.start()
    for i in range(n):
        started.wait()
        write(u.path / f"p/x{i}", b"")
        time.sleep(0.006)  # the clock moves on
        born = os.stat(u.path / f"p/x{i}").st_mtime_ns
        assert max(os.stat(b / "p").st_mtime_ns for b in disks) >= born, i
    t.join()


# ------------------------------------------------------------- directories that are gone

def tmpfile_in(fd):
    os.close(os.open(".", os.O_TMPFILE | os.O_RDWR, dir_fd=fd))


def test_nothing_can_be_made_in_a_directory_that_was_removed(area, make_union):
    disks = [area.disk() for _ in range(2)]
    u = make_union(branches=disks)
    fill(disks[1] / "big", 4 * MIB)
    os.mkdir(u.path / "x")
    assert u.where("x") == [0]
    fd = os.open(u.path / "x", os.O_RDONLY)
    os.rmdir(u.path / "x")
    assert errno_of(tmpfile_in, fd) == errno.EPERM  # as ext4 has it
    fill(disks[0] / "big", 12 * MIB)  # it would go to the other branch, which has no copy
    assert errno_of(tmpfile_in, fd) == errno.ENOENT
    assert os.fstat(fd).st_mode & 0o170000 == 0o040000
    os.close(fd)
    assert u.where("x") == []


@pytest.mark.parametrize("gone", ["removed", "replaced"])
def test_a_directory_that_is_gone_takes_no_copy_from_the_one_that_has_its_name_now(area, make_union, gone):
    disks = [area.disk() for _ in range(2)]
    u = make_union(branches=disks)
    fill(disks[1] / "big", 4 * MIB)
    os.mkdir(u.path / "x")
    fd = os.open(u.path / "x", os.O_RDONLY)
    if gone == "removed":
        os.rmdir(u.path / "x")
    os.mkdir(u.path / "y")
    fill(disks[0] / "big", 12 * MIB)
    write(u.path / "y/f", b"f")
    assert u.where("y/f") == [1]
    os.rename(u.path / "y", u.path / "x")
    assert os.listdir(u.path / "x") == ["f"]
    assert errno_of(tmpfile_in, fd) == errno.ENOENT
    assert os.listdir(u.path / "x") == ["f"] and read(u.path / "x/f") == b"f"
    os.close(fd)
