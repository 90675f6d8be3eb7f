"""Renaming: every combination of branches, and a power cut at every step."""

import errno
import itertools
import os
import pathlib
import shutil
import signal
import threading

import pytest

import fault_util
from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import (MIB, RENAME_EXCHANGE, RENAME_NOREPLACE, Server, Union, device_branch, errno_of, fsync_dir,
                          is_mounted, read, renameat2, run, tree, wait_for, write)

DISK = 12 * MIB


def put(branches, where, name, content):
    for i, letter in where.items():
        path = branches[i] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, f"{content}{letter}".encode())


# source and target: which branches have them, and what the union must show of each.
MATRIX = [(src, dst) for src in ([0], [1], [2], [0, 2], [1, 2], [0, 1, 2])
          for dst in ([], [0], [1], [2], [0, 1], [0, 2], [1, 2], [0, 1, 2])]


@pytest.mark.parametrize("same_dir", [True, False])
def test_the_source_that_shows_becomes_the_target_that_shows(area, make_union, same_dir):
    branches = [area.disk(DISK) for _ in range(3)]
    for k, (src, dst) in enumerate(MATRIX):
        to = f"t{k}" if same_dir else f"d{k}/e/t"
        if not same_dir:  # the directory exists where the target does, and on branch 1
            for b in {1, *dst}:
                (branches[b] / f"d{k}/e").mkdir(parents=True)
        put(branches, {i: i for i in src}, f"s{k}", "source")
        put(branches, {i: i for i in dst}, to, "target")
    u = make_union(branches=branches)
    for k, (src, dst) in enumerate(MATRIX):
        to = f"t{k}" if same_dir else f"d{k}/e/t"
        os.rename(u.path / f"s{k}", u.path / to)
        what = f"source on {src}, target on {dst}"
        assert read(u.path / to) == f"source{src[0]}".encode(), what
        assert not os.path.lexists(u.path / f"s{k}"), what
        assert u.where(f"s{k}") == [], what
        assert u.where(to)[0] == src[0], what
        os.unlink(u.path / to)
        assert u.where(to) == [], what


@pytest.mark.vm
def test_what_a_file_is_stays_the_same_when_it_is_renamed(make_union):
    u = make_union(2)
    write(u.path / "a", b"x")
    before = os.stat(u.path / "a")
    with open(u.path / "a", "r+b") as f:
        os.mkdir(u.path / "d")
        os.rename(u.path / "a", u.path / "d" / "b")
        f.write(b"y")
    after = os.stat(u.path / "d" / "b")
    assert (before.st_ino, before.st_dev) == (after.st_ino, after.st_dev)
    assert read(u.path / "d" / "b") == b"y"


@pytest.mark.vm
def test_noreplace_refuses_a_target_on_any_branch(area, make_union):
    branches = [area.disk(DISK) for _ in range(2)]
    write(branches[0] / "a", b"a")
    write(branches[1] / "b", b"b")
    u = make_union(branches=branches)
    assert errno_of(renameat2, u.path / "a", u.path / "b", RENAME_NOREPLACE) == errno.EEXIST
    assert errno_of(renameat2, u.path / "b", u.path / "a", RENAME_NOREPLACE) == errno.EEXIST
    renameat2(u.path / "a", u.path / "c", RENAME_NOREPLACE)
    assert (read(u.path / "b"), read(u.path / "c")) == (b"b", b"a")


@pytest.mark.vm
def test_exchange_works_on_one_branch_and_is_refused_between_two(area, make_union):
    branches = [area.disk(DISK) for _ in range(2)]
    write(branches[0] / "a", b"a")
    write(branches[0] / "b", b"b")
    write(branches[1] / "c", b"c")
    for d in ("d", "e"):
        (branches[0] / d).mkdir()
        write(branches[0] / d / "name", d.encode())
    u = make_union(branches=branches)
    renameat2(u.path / "a", u.path / "b", RENAME_EXCHANGE)
    assert (read(u.path / "a"), read(u.path / "b")) == (b"b", b"a")
    assert errno_of(renameat2, u.path / "a", u.path / "c", RENAME_EXCHANGE) == errno.EINVAL
    fd = os.open(u.path / "d", os.O_RDONLY)
    renameat2(u.path / "d", u.path / "e", RENAME_EXCHANGE)
    assert (read(u.path / "d/name"), read(u.path / "e/name")) == (b"e", b"d")
    # The directory that was d is cloned as e from now on.
    write(f"/proc/self/fd/{fd}/new", b"n")
    os.close(fd)
    assert read(u.path / "e/new") == b"n"


@pytest.mark.parametrize("src,dst,result", [
    ("dir", "none", 0), ("dir", "empty", 0), ("dir", "full", errno.ENOTEMPTY), ("dir", "file", errno.ENOTDIR),
    ("file", "empty", errno.EISDIR), ("file", "full", errno.EISDIR)])
@pytest.mark.parametrize("where", list(itertools.product([(0,), (1,), (0, 1)], repeat=2)))
def test_directories_and_files_over_each_other(area, make_union, src, dst, result, where):
    branches = [area.disk(DISK) for _ in range(2)]
    for kind, name, on in ((src, "s", where[0]), (dst, "t", where[1])):
        for b in on:
            if kind == "file":
                write(branches[b] / name, b"file")
            elif kind != "none":
                (branches[b] / name).mkdir()
                if kind != "empty":
                    write(branches[b] / name / f"f{b}", b"f")
    u = make_union(branches=branches)
    before = tree(u.path)
    assert errno_of(os.rename, u.path / "s", u.path / "t") == result
    if result:
        assert tree(u.path) == before
    else:
        assert sorted(os.listdir(u.path / "t")) == [f"f{b}" for b in where[0]]
        assert not os.path.lexists(u.path / "s")


def test_a_directory_keeps_its_attributes_and_number_when_it_moves(make_union):
    u = make_union(2)
    os.makedirs(u.path / "a/b/c")
    for i in range(4):
        write(u.path / f"a/b/f{i}", bytes([i]) * 2 * MIB)
    os.chmod(u.path / "a/b", 0o2751)
    os.chown(u.path / "a/b", 7, 8)
    os.setxattr(u.path / "a/b", "user.k", b"v")
    assert u.where("a/b") == [0, 1]
    before = os.stat(u.path / "a/b")
    os.mkdir(u.path / "t")
    os.rename(u.path / "a/b", u.path / "t/x")
    u.restart()
    after = os.stat(u.path / "t/x")
    assert [getattr(before, k) for k in ("st_ino", "st_mode", "st_uid", "st_gid")] == \
        [getattr(after, k) for k in ("st_ino", "st_mode", "st_uid", "st_gid")]
    assert os.getxattr(u.path / "t/x", "user.k") == b"v"
    assert sorted(os.listdir(u.path / "t/x")) == ["c", "f0", "f1", "f2", "f3"]


# ------------------------------------------------------------------- power cuts

class Disks:
    """Disks whose contents, as they would be after a power cut at this moment, can be taken away and looked at.

    What a filesystem has not written yet is not in its image.  Each disk may be further than that: so there are two
    copies, one as it is and one after a sync of that disk, and a cut may leave any combination.
    """

    def __init__(self, area, points):
        self.area, self.points = area, points
        self.images = [p.parent.with_suffix(".img") for p in points]
        self.copies = []

    def cut(self):
        now = [self.copy(i, "now") for i in range(len(self.images))]
        for p in self.points:
            run("sync", "-f", p)
        later = [self.copy(i, "later") for i in range(len(self.images))]
        return [list(c) for c in itertools.product(*zip(now, later))]

    def copy(self, i, what):
        to = self.area.path / f"cut-{i}-{what}.img"
        run("cp", "--sparse=always", self.images[i], to)
        return to

    def scratch(self, i, image):
        """A copy that journal replay may spoil; a new file each time, for mount(8) takes a loop device of the same
        file again, with what it has cached, as long as anybody still has it open."""
        path = self.area.path / f"scratch-{i}.img"
        path.unlink(missing_ok=True)
        run("cp", "--sparse=always", image, path)
        return path

    def mount(self, images):
        points = []
        for i, image in enumerate(images):
            scratch = self.scratch(i, image)
            point = self.area.path / f"cut-{i}"
            point.mkdir(exist_ok=True)
            run("mount", "-o", "loop", scratch, point)
            points.append(point)
        return points

    def unmount(self):
        for i in range(len(self.images)):
            point = self.area.path / f"cut-{i}"
            if is_mounted(point):
                run("umount", point)


def stop_at_each_step(area, union, faults, operation, at_step, prepare):
    """Freezes the union before its n-th step of an operation, for n = 1, 2, …; returns how many there are."""
    n = 0
    while True:
        n += 1
        prepare()
        union.start()
        faults.arm(fault_util.STOP, n, program="union-fs")
        failure = []

        def work():
            try:
                operation()
            except OSError as e:
                failure.append(e)

        t = threading.Thread(target=work)
        t.start()
        while t.is_alive() and not faults.fired:
            t.join(0.002)
        fired = faults.fired
        if fired:
            at_step(n, faults.call)
        faults.disarm()
        union.process.send_signal(signal.SIGCONT)
        t.join()
        if not fired:
            assert not failure, failure
            return n - 1
        assert not failure, (n, failure)
        union.stop()


CRASHES = [  # source on, target on, target in a directory of its own
    ([0], [1], False), ([0], [0], False), ([1], [0], False), ([2], [0, 1], False), ([1], [0, 1, 2], False),
    ([1], [0, 2], False), ([1, 2], [0, 2], False), ([1], [0], True), ([0], [1], True),
]


@pytest.mark.parametrize("src,dst,deep", CRASHES)
def test_a_power_cut_at_any_step_leaves_the_old_or_the_new_file(area, src, dst, deep):
    branches = [area.disk(DISK, options="loop,commit=600") for _ in range(max(src + dst) + 1)]
    disks, faults = Disks(area, branches), fault_util.Faults(area.path / "faults")
    to = "d/t" if deep else "t"
    union = Union(area, branches, env=faults.env())
    seen = set()

    def prepare():
        for b in branches:
            for name in ("s", "t", "d"):
                shutil.rmtree(b / name, ignore_errors=True)
                if os.path.lexists(b / name):
                    os.unlink(b / name)
        put(branches, {i: i for i in src}, "s", "new")
        put(branches, {i: i for i in dst}, to, "old")
        for b in branches:
            run("sync", "-f", b)

    def look(images):
        points = disks.mount(images)
        u = Union(area, [p / "d" for p in points], target=area.path / "look")
        (area.path / "look").mkdir(exist_ok=True)
        u.start()
        try:
            target = read(u.path / to) if os.path.lexists(u.path / to) else None
            source = read(u.path / "s") if os.path.lexists(u.path / "s") else None
        finally:
            u.stop()
            disks.unmount()
        return target, source

    def at_step(n, call):
        for k, images in enumerate(disks.cut()):
            target, source = look(images)
            what = f"cut before step {n} ({call}), combination {k}: target {target}, source {source}"
            assert target in (f"new{src[0]}".encode(), f"old{dst[0]}".encode()), what
            if target.startswith(b"old"):
                assert source == f"new{src[0]}".encode(), what
            seen.add(target[:3])

    steps = stop_at_each_step(area, union, faults, lambda: (os.rename(union.path / "s", union.path / to),
                                                           fsync_dir((union.path / to).parent),
                                                           fsync_dir(union.path)), at_step, prepare)
    # The directories are synced: a cut now, or at any time after, has the new one and nothing else.
    for images in disks.cut():
        assert look(images) == (f"new{src[0]}".encode(), None)
    assert steps >= 2 and seen == {b"old", b"new"}
    union.stop()


def test_a_failure_at_any_step_leaves_a_file_that_can_be_seen(area):
    """Not a cut: a step that fails.  The caller learns of it or not; nothing is lost either way."""
    branches = [area.disk(DISK) for _ in range(3)]
    faults = fault_util.Faults(area.path / "faults")
    union = Union(area, branches, env=faults.env()).start()
    for src, dst in (([1], [0, 2]), ([0], [1, 2])):
        for n in range(1, 40):
            for b in branches:
                for name in ("s", "t"):
                    if os.path.lexists(b / name):
                        os.unlink(b / name)
            put(branches, {i: i for i in src}, "s", "new")
            put(branches, {i: i for i in dst}, "t", "old")
            union.restart()
            faults.arm(fault_util.FAIL, n, error=errno.EIO, program="union-fs")
            result = errno_of(os.rename, union.path / "s", union.path / "t")
            fired, call = faults.fired, faults.call
            faults.disarm()
            target = read(union.path / "t")
            if result == 0:
                assert target == f"new{src[0]}".encode(), (n, call)
                assert not os.path.lexists(union.path / "s"), (n, call)
            else:
                assert read(union.path / "s") == f"new{src[0]}".encode(), (n, call)
                assert target in (f"new{src[0]}".encode(), f"old{dst[0]}".encode())
            if not fired:
                break
        assert n > 2 and result == 0
    union.stop()


@pytest.mark.parametrize("target", ["none", "empty-on-both", "empty-on-2"])
def test_a_power_cut_in_a_directorys_rename_is_completed_at_the_next_start(area, target):
    devices = [area.loop(DISK) for _ in range(3)]
    images = [area.path / f"disk{i + 1}.img" for i in range(3)]
    faults = fault_util.Faults(area.path / "faults")
    server = Server(area, [device_branch(*d) for d in devices], env=faults.env())
    # To write behind the server's back, and to sync: the same filesystems, seen from here.
    points = [area.dir(f"peep{i}") for i in range(3)]
    server.start()
    server.stop()
    for p, (d, _) in zip(points, devices):
        run("mount", "-o", "commit=600", d, p)
    disks = Disks(area, [p / "union" for p in points])
    disks.images = images

    def prepare():
        for p in points:
            shutil.rmtree(p / "union")
            (p / "union").mkdir()
        for i in (0, 1):
            (points[i] / "union/up/s/sub").mkdir(parents=True)
            write(points[i] / f"union/up/s/f{i}", b"x")
        for i in {"none": [], "empty-on-both": [0, 1], "empty-on-2": [2]}[target]:
            (points[i] / "union/other/t").mkdir(parents=True)
        (points[1] / "union/other").mkdir(parents=True, exist_ok=True)
        for p in points:
            run("sync", "-f", p)

    def look(cut):
        loops = []
        try:
            for i, image in enumerate(cut):
                loops.append(run("losetup", "--find", "--show", disks.scratch(i, image)).stdout.decode().strip())
            s = Server(area, [device_branch(d, u) for d, (_, u) in zip(loops, devices)], dir=area.path / "look-dir",
                       initialise=False)
            s.dir.mkdir(exist_ok=True)
            s.start()
            try:
                names = sorted(str(p.relative_to(s.path)) for p in pathlib.Path(s.path).rglob("*"))
            finally:
                s.stop()
            return names
        finally:
            for d in loops:
                run("losetup", "-d", d)

    before = ["other", "up", "up/s", "up/s/f0", "up/s/f1", "up/s/sub"] + ([] if target == "none" else ["other/t"])
    after = ["other", "other/t", "other/t/f0", "other/t/f1", "other/t/sub", "up"]
    seen = set()

    def at_step(n, call):
        for k, cut in enumerate(disks.cut()):
            names = look(cut)
            assert names in (sorted(before), sorted(after)), f"cut before step {n} ({call}), combination {k}: {names}"
            seen.add(tuple(names))

    steps = stop_at_each_step(area, server, faults, lambda: os.rename(server.path / "up/s", server.path / "other/t"),
                              at_step, prepare)
    for cut in disks.cut():
        assert look(cut) == sorted(after)
    assert steps >= 8 and len(seen) == 2
    server.stop()


def test_a_directorys_rename_that_fails_on_one_branch_is_undone(area):
    branches = [area.disk(DISK) for _ in range(2)]
    faults = fault_util.Faults(area.path / "faults")
    union = Union(area, branches, env=faults.env()).start()
    for b in (0, 1):
        (branches[b] / "s").mkdir()
        write(branches[b] / f"s/f{b}", b"x")
    (branches[0] / "t").mkdir()
    union.restart()
    for n in range(1, 30):
        faults.arm(fault_util.FAIL, n, error=errno.EIO, program="union-fs", only="renameat2")
        result = errno_of(os.rename, union.path / "s", union.path / "t")
        fired = faults.fired
        faults.disarm()
        if not fired:
            break
        assert result == errno.EIO
        assert sorted(os.listdir(union.path / "s")) == ["f0", "f1"]
        assert os.listdir(union.path / "t") == []
    assert n == 3 and result == 0
    assert sorted(os.listdir(union.path / "t")) == ["f0", "f1"] and not os.path.lexists(union.path / "s")
    union.stop()
