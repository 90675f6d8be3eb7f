"""Which branch gets something new where branches are full, busy or broken."""

import errno
import fcntl
import os
import shutil
import struct

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import As, MIB, errno_of, fsync_dir, read, run, write

EXT4_IOC_SHUTDOWN = 0x8004587D


def shut_down(branch):
    """What ext4 does after an I/O error, at once."""
    fd = os.open(branch, os.O_RDONLY)
    fcntl.ioctl(fd, EXT4_IOC_SHUTDOWN, struct.pack("I", 2))
    os.close(fd)


def test_files_that_are_filled_at_the_same_time_share_the_branches(make_union):
    u = make_union(n=4, size=100 * MIB)
    fds = [os.open(u.path / f"f{i}", os.O_CREAT | os.O_WRONLY) for i in range(8)]
    assert sorted(u.where(f"f{i}")[0] for i in range(8)) == [0, 0, 1, 1, 2, 2, 3, 3]
    for _ in range(15):
        for fd in fds:
            assert os.write(fd, b"x" * MIB) == MIB
    for fd in fds:
        os.close(fd)


def test_a_larger_branch_gets_more_of_the_files_that_are_being_filled(area, make_union):
    u = make_union(branches=[area.disk(48 * MIB), area.disk(144 * MIB)])
    fds = [os.open(u.path / f"f{i}", os.O_CREAT | os.O_WRONLY) for i in range(8)]
    assert 5 <= sum(u.where(f"f{i}") == [1] for i in range(8)) <= 7
    for fd in fds:
        os.close(fd)


def test_a_file_that_has_been_filled_counts_no_more(make_union):
    u = make_union(n=2)
    (u.branches[1].parent / "ballast").write_bytes(b"x" * 20 * MIB)
    for i in range(8):
        write(u.path / f"f{i}", b"x")
        os.stat(u.path)  # the kernel reports a close when it has time
        fsync_dir(u.path)
    assert [u.where(f"f{i}") for i in range(8)] == 8 * [[0]]


def test_a_branch_that_fails_gives_way_to_others(make_union):
    u = make_union(n=3)
    best = 1
    for i in (0, 2):
        (u.branches[i].parent / "ballast").write_bytes(b"x" * 20 * MIB)
    for b in u.branches:
        (b / "all").mkdir()
    os.mkdir(u.path / "one")
    assert u.where("one") == [best]
    write(u.path / "lost", b"x")
    shut_down(u.branches[best])
    for d in ("", "all/", "one/"):
        write(u.path / f"{d}f", d.encode() or b"top")
        os.mkdir(u.path / f"{d}d")
        os.symlink("x", u.path / f"{d}s")
        assert best not in u.where(f"{d}f") + u.where(f"{d}d") + u.where(f"{d}s")
    assert read(u.path / "one/f") == b"one/"
    assert errno_of(write, u.path / "lost", b"y") == errno.EIO
    assert u.words().count("new files go to others") == 1


def test_a_branch_that_became_read_only_gets_nothing_new_for_a_while(make_union):
    u = make_union(n=2)
    (u.branches[1].parent / "ballast").write_bytes(b"x" * 20 * MIB)
    run("mount", "-o", "remount,ro", u.branches[0].parent)
    write(u.path / "a", b"x")
    run("mount", "-o", "remount,rw", u.branches[0].parent)
    write(u.path / "b", b"x")
    assert [u.where("a"), u.where("b")] == [[1], [1]]


def test_a_branch_whose_directory_is_gone_gives_way_to_others(area, make_union):
    branches = [area.dir("b0"), area.dir("b1")]
    for b in branches:
        (b / "d").mkdir()
    u = make_union(branches=branches)
    write(u.path / "d/before", b"x")
    shutil.rmtree(branches[0])
    for d in ("", "d/"):
        write(u.path / f"{d}f", b"data")
        os.mkdir(u.path / f"{d}new")
        assert u.where(f"{d}f") == u.where(f"{d}new") == [1]


def test_with_all_branches_broken_the_reason_is_told(make_union):
    u = make_union(n=2)
    for b in u.branches:
        shut_down(b)
    assert errno_of(write, u.path / "f", b"x") == errno.EIO
    assert errno_of(os.mkdir, u.path / "d") == errno.EIO


@pytest.mark.parametrize("how", ["on", "off"])
def test_blocks_reserved_for_root_are_not_shared_by_opening_a_file_of_roots(area, make_union, how):
    point = area.dir("reserved")
    image = area.image(64 * MIB)
    run("tune2fs", "-m", "30", image)
    run("mount", "-o", "loop", image, point)
    (point / "d").mkdir()
    u = make_union(branches=[point / "d"], passthrough="auto" if how == "on" else how)
    root = os.open(u.path / "f", os.O_CREAT | os.O_RDWR)
    os.chmod(u.path / "f", 0o666)
    os.chmod(area.path, 0o711)

    def write_all():
        fd, n = os.open(u.path / "f", os.O_WRONLY), 0
        try:
            while True:
                n += os.write(fd, b"x" * MIB)
        except OSError as e:
            return [n // MIB, e.errno]

    mib, reason = As(1000, 1000)(write_all)
    os.close(root)
    assert reason == errno.ENOSPC and 20 <= mib <= 45


def fill(branch):
    """To the last block: what the filesystem had reserved beyond need it gives back when it is synced."""
    n = 0
    for size in (MIB, 4096, 1, 4096, 1):
        while True:
            try:
                write(branch.parent / f"ballast{n}", b"x" * size)
            except OSError as e:
                assert e.errno == errno.ENOSPC
                break
            finally:
                n += 1
        run("sync", "-f", branch)


def test_what_cannot_go_along_on_its_full_branch_is_copied(area, make_union):
    u = make_union(branches=[area.disk(24 * MIB), area.disk(96 * MIB)])
    for name in ("f", "g", "h"):
        write(u.branches[0] / name, name.encode())
    (u.branches[0] / "dir").mkdir()
    os.mkdir(u.path / "to")
    assert u.where("to") == [1]
    fill(u.branches[0])
    assert errno_of(os.rename, u.path / "f", u.path / "to/f") == errno.EXDEV
    assert errno_of(os.link, u.path / "f", u.path / "to/f") == errno.EXDEV
    run("mv", u.path / "f", u.path / "g", u.path / "dir", u.path / "to")
    assert read(u.path / "to/f") == b"f" and u.where("to/f") == [1]
    assert sorted(os.listdir(u.path / "to")) == ["dir", "f", "g"]
    assert sorted(os.listdir(u.path)) == ["h", "to"]
