"""What the kernel or a program holds and the branches do not show."""

import errno
import mmap
import os
import time

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import MIB, errno_of, read, run, wait_for, write


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
