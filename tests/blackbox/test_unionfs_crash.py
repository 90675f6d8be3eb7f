"""What fsync() promises when several disks hold a directory: power cuts after operations on names."""

import os

import pytest

from test_unionfs_rename import Disks
from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import MIB, Union, read, run, write

DISK = 48 * MIB


def new_file(path):
    """A program that makes its file safe."""
    fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.write(fd, b"new")
    os.fsync(fd)
    os.close(fd)


def unlink_create(top):
    os.unlink(top / "f")
    new_file(top / "f")


def rotate(top):
    os.rename(top / "f", top / "f.1")
    new_file(top / "f")


def move_away_and_create(top):
    os.rename(top / "f", top / "other" / "f")
    new_file(top / "f")


def unlink_and_rename_onto(top):
    new_file(top / "tmp")
    os.unlink(top / "f")
    os.rename(top / "tmp", top / "f")
    fd = os.open(top / "f", os.O_RDWR)
    os.fsync(fd)
    os.close(fd)


def unlink_and_link(top):
    new_file(top / "tmp")
    os.unlink(top / "f")
    os.link(top / "tmp", top / "f")
    fd = os.open(top / "f", os.O_RDWR)
    os.fsync(fd)
    os.close(fd)


def rmdir_create(top):
    os.unlink(top / "x/old")
    os.rmdir(top / "x")
    new_file(top / "x")


def rmdir_mkdir(top):
    os.unlink(top / "x/old")
    os.rmdir(top / "x")
    os.mkdir(top / "x")
    new_file(top / "x/f")


def rename_mkdir(top):
    os.rename(top / "x", top / "x.old")
    os.mkdir(top / "x")
    new_file(top / "x/f")


def rmdir_and_rename_onto(top):
    os.mkdir(top / "y")
    new_file(top / "y/f")
    os.unlink(top / "x/old")
    os.rmdir(top / "x")
    os.rename(top / "y", top / "x")


class Cut:
    """Disks that write nothing of their own accord, and what a union of them is after a power cut."""

    def __init__(self, area, n=2):
        self.area = area
        self.branches = [area.disk(DISK, options="loop,commit=600") for _ in range(n)]
        self.disks = Disks(area, self.branches)

    def sync(self):
        for b in self.branches:
            run("sync", "-f", b)

    def fill(self, *which):
        """New files go to the others."""
        for i in which:
            write(self.branches[i].parent / "ballast", b"x" * 12 * MIB)
        self.sync()

    def after_cut(self, look, sync=()):
        """What @look sees of the union as it would be after a power cut, when the disks in @sync are up to date."""
        for i in sync:
            run("sync", "-f", self.branches[i])
        points = self.disks.mount([self.disks.copy(i, "now") for i in range(len(self.branches))])
        target = self.area.path / "look"
        target.mkdir(exist_ok=True)
        u = Union(self.area, [p / "d" for p in points], target=target).start()
        try:
            return look(u.path)
        finally:
            u.stop()
            self.disks.unmount()


@pytest.mark.parametrize("operation", [unlink_create, rotate, move_away_and_create, unlink_and_rename_onto,
                                       unlink_and_link])
def test_a_file_that_was_synced_is_not_hidden_by_a_former_one_of_its_name(area, operation):
    cut = Cut(area)
    write(cut.branches[0] / "f", b"old")
    (cut.branches[0] / "other").mkdir()
    cut.fill(0)
    u = Union(area, cut.branches).start()
    operation(u.path)
    assert u.where("f") == [1]
    assert cut.after_cut(lambda top: read(top / "f")) == b"new"
    u.stop()


@pytest.mark.parametrize("operation,file", [(rmdir_create, "x"), (rmdir_mkdir, "x/f"), (rename_mkdir, "x/f"),
                                            (rmdir_and_rename_onto, "x/f")])
def test_a_directory_does_not_merge_with_a_former_one_of_its_name(area, operation, file):
    cut = Cut(area)
    (cut.branches[0] / "x").mkdir()
    write(cut.branches[0] / "x/old", b"old")
    cut.fill(0)
    u = Union(area, cut.branches).start()
    operation(u.path)
    assert cut.after_cut(lambda top: (read(top / file), (top / "x/old").exists()), sync=[1]) == (b"new", False)
    u.stop()


def test_a_directory_that_is_made_again_in_place_does_not_merge_when_it_is_cloned(area):
    """The name is used again on its own disk first, where the order is kept, and only then on the other one."""
    cut = Cut(area)
    (cut.branches[0] / "x").mkdir()
    write(cut.branches[0] / "x/old", b"old")
    write(cut.branches[1].parent / "ballast", b"x" * 8 * MIB)
    cut.sync()
    u = Union(area, cut.branches).start()
    os.unlink(u.path / "x/old")
    os.rmdir(u.path / "x")
    os.mkdir(u.path / "x")
    assert u.where("x") == [0]
    write(cut.branches[0].parent / "ballast", b"x" * 20 * MIB)
    new_file(u.path / "x/f")
    assert u.where("x/f") == [1]
    assert cut.after_cut(lambda top: sorted(os.listdir(top / "x"))) == ["f"]
    u.stop()


OLD, NEW = b"old contents\n" * 1000, b"new contents\n" * 1000


@pytest.mark.parametrize("target", [0, 1, 2])
def test_a_file_that_replaces_another_unsynced_has_its_contents_after_a_power_cut(area, target):
    """What ext4 does alone: programs that rename a new file over the old one, and sync neither, lose neither."""
    cut = Cut(area, n=3)
    write(cut.branches[target] / "f", OLD)
    cut.fill(0, 2)
    u = Union(area, cut.branches).start()
    write(u.path / "tmp", NEW)
    assert u.where("tmp") == [1]
    os.rename(u.path / "tmp", u.path / "f")
    for sync in ([], [1], [0, 1, 2]):
        assert cut.after_cut(lambda top: read(top / "f"), sync=sync) in (OLD, NEW), sync
    assert read(u.path / "f") == NEW
    u.stop()


def test_what_a_rename_replaced_on_a_higher_branch_stays_away_when_the_new_file_is_removed(area):
    cut = Cut(area)
    write(cut.branches[0] / "n", b"new")
    write(cut.branches[1] / "f", b"old")
    cut.sync()
    u = Union(area, cut.branches).start()
    os.rename(u.path / "n", u.path / "f")
    os.unlink(u.path / "f")
    assert cut.after_cut(lambda top: os.listdir(top), sync=[0]) == []
    u.stop()


def test_names_that_are_used_again_and_again_cost_no_syncing(area):
    """Branches that are about as free take turns otherwise, and each turn would wait for a disk."""
    branches = [area.disk(DISK) for _ in range(2)]
    u = Union(area, branches).start()
    where = []
    for i in range(20):
        write(u.path / "lock", b"x" * 65536)
        where.append(u.where("lock"))
        os.unlink(u.path / "lock")
        write(u.path / f"ballast{i}", b"x" * 8192)
    assert where == 20 * where[:1]
    u.stop()
