"""What the kernel or a program holds and the branches do not show."""

import ctypes
import errno
import mmap
import os
import struct
import time

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import IS_ASAN, IS_TSAN, MIB, Union, errno_of, libc, read, run, wait_for, write


@pytest.mark.parametrize("how", ["on", "off"])
def test_what_is_written_through_a_mapping_is_no_hole(make_server, area, how):
    top = make_server(args=[f"--passthrough={'auto' if how == 'on' else how}"]).path
    fd = os.open(top / "f", os.O_RDWR | os.O_CREAT)
    os.ftruncate(fd, 4 * MIB)
    with mmap.mmap(fd, 4 * MIB) as m:
        m[2 * MIB:3 * MIB] = b"x" * MIB
        run("cp", top / "f", area.path / "outside")
        run("cp", top / "f", top / "inside")
        assert os.lseek(fd, 0, os.SEEK_DATA) <= 2 * MIB
        assert os.lseek(fd, 2 * MIB, os.SEEK_HOLE) >= 3 * MIB
        assert [errno_of(os.lseek, fd, 4 * MIB, w) for w in (os.SEEK_DATA, os.SEEK_HOLE)] == 2 * [errno.ENXIO]
    os.close(fd)
    assert read(area.path / "outside") == read(top / "inside") == read(top / "f")
    assert read(top / "f").count(b"x") == MIB


def losses(top, area):
    """Ways of losing the last name of a file: (how, function of its path)."""
    def replace(f):
        write(top / "new", b"new")
        os.rename(top / "new", f)

    def replace_and_unlink(f):
        os.link(f, top / "other")
        replace(f)
        os.unlink(top / "other")

    def unlink_both(f):
        os.link(f, top / "other")
        os.unlink(f)
        os.unlink(top / "other")
    return [os.unlink, replace, replace_and_unlink, unlink_both]


@pytest.mark.parametrize("which", range(4))
def test_a_mounted_file_is_readable_without_a_name(make_union, area, which):
    u = make_union(n=2)
    point = area.path / "point"
    point.touch()
    write(u.path / "f", b"data")
    run("mount", "--bind", u.path / "f", point)
    try:
        losses(u.path, area)[which](u.path / "f")
        time.sleep(1.1)  # the kernel asks again
        assert read(point) == b"data"
        write(point, b"DATA", os.O_WRONLY)
        assert read(point) == b"DATA" and os.stat(point).st_nlink == 0
    finally:
        run("umount", point)


@pytest.mark.parametrize("which", range(4))
def test_a_path_descriptor_works_without_a_name(make_union, area, which):
    u = make_union(n=2)
    write(u.path / "f", b"data")
    fd = os.open(u.path / "f", os.O_PATH)
    losses(u.path, area)[which](u.path / "f")
    time.sleep(1.1)
    assert os.fstat(fd).st_nlink == 0 and read(f"/proc/self/fd/{fd}") == b"data"
    os.close(fd)


def test_the_space_of_a_removed_file_can_be_used_at_once(make_union):
    u = make_union(n=1, size=64 * MIB)
    for _ in range(20):
        assert write(u.path / "f", b"x" * 50 * MIB) == 50 * MIB
        os.unlink(u.path / "f")
        assert write(u.path / "f", b"x" * 40 * MIB) == 40 * MIB
        os.unlink(u.path / "f")


def test_removed_files_leave_no_descriptors(make_union):
    u = make_union(n=2)

    def n_fds():
        return len(os.listdir(f"/proc/{u.process.pid}/fd"))

    before = n_fds()
    for i in range(200):
        write(u.path / f"f{i}", b"x")
    for i in range(200):
        os.unlink(u.path / f"f{i}")
    wait_for(lambda: n_fds() <= before + 2, "return of descriptors")


N_NAMES = 25000


def names_from(fd, n=None):
    """Names of a directory, from where it was read up to: at least n, or all."""
    buf, names = ctypes.create_string_buffer(32768), []
    while n is None or len(names) < n:
        got = libc.syscall(217, fd, buf, len(buf))  # getdents64
        assert got >= 0
        if not got:
            break
        at = 0
        while at < got:
            length = struct.unpack_from("<H", buf, at + 16)[0]
            names.append(buf.raw[at + 19:at + length].split(b"\0")[0].decode())
            at += length
    return [name for name in names if name not in (".", "..")]


@pytest.fixture
def large(make_union, area):
    """A union with a directory of many names, which two branches have."""
    branches = [area.dir("b0"), area.dir("b1")]
    for b in branches:
        (b / "d").mkdir()
    for i in range(N_NAMES):
        os.close(os.open(branches[i % 2] / "d" / f"{i}{'n' * 100}", os.O_CREAT | os.O_WRONLY))
    return make_union(branches=branches)


def open_often(u, n=40):
    """Directories of which a part is read; more than the server keeps listings of."""
    fds = [os.open(u.path / "d", os.O_RDONLY | os.O_DIRECTORY) for _ in range(n)]
    for fd in fds:
        assert names_from(fd, 1)
    return fds


def close_all(fds):
    for fd in fds:
        os.close(fd)


def test_open_directories_take_a_bounded_amount_of_memory(large):
    def rss():
        with open(f"/proc/{large.process.pid}/statm") as f:
            return int(f.read().split()[1]) * 4096
    before = rss()
    fds = open_often(large, 100)
    if not (IS_ASAN or IS_TSAN):
        assert rss() - before < 96 * MIB
    close_all(fds)
    if not (IS_ASAN or IS_TSAN):
        wait_for(lambda: rss() - before < 16 * MIB, "return of memory")


def test_a_listing_that_was_given_up_goes_on_where_it_was(large):
    fds = [os.open(large.path / "d", os.O_RDONLY | os.O_DIRECTORY) for _ in range(2)]
    first = [names_from(fd, 1000) for fd in fds]
    # What was told is removed: at first all but the last name, behind which it goes on, then that one too.
    for name in first[0][:-1]:
        os.unlink(large.path / "d" / name)
    others = open_often(large)
    rest = names_from(fds[1])
    assert len(first[1]) + len(rest) == len(set(first[1] + rest)) == N_NAMES
    os.unlink(large.path / "d" / first[0][-1])
    others += open_often(large)
    rest = names_from(fds[0])
    assert len(first[0]) + len(rest) == len(set(first[0] + rest)) == N_NAMES
    close_all(fds + others)


def test_a_file_that_has_no_room_in_the_server_is_not_made(area):
    """Where branches have no file handles, each file that the kernel knows takes a descriptor."""
    branches = [area.disk(), area.disk()]
    for i in range(200):
        write(branches[0] / f"f{i}", b"x")
    u = Union(area, branches)
    u.command = ["prlimit", "--nofile=256:256", "setpriv", "--bounding-set=-dac_read_search,-sys_resource",
                 "--inh-caps=-all", "--", *map(str, u.command)]
    u.start()
    reasons = [errno_of(os.stat, u.path / f"f{i}") for i in range(200)]
    assert reasons.count(errno.ENFILE) > 50 and reasons[0] == 0
    for how in (lambda p: write(p, b"x"), os.mkdir, lambda p: os.symlink("x", p), os.mkfifo):
        assert errno_of(how, u.path / "new") == errno.ENFILE
        assert not u.where("new")
    u.stop()
