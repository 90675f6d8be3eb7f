"""Many processes at once: what each of them does alone must come out as if it were alone."""

import errno
import hashlib
import os
import random
import time
import traceback

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import IS_ASAN, IS_TSAN, MIB, fsync_dir, read, write

SECONDS = float(os.environ.get("UNIONFS_STRESS_SECONDS", 6 if IS_ASAN or IS_TSAN else 4))


class Processes:
    """Functions in processes of their own, until time is over; what they raise fails the test."""

    def __init__(self, path):
        self.path, self.pids = path, []

    def add(self, fn, *args):
        name = f"{fn.__name__}-{len(self.pids)}"
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                fn(*args)
                code = 0
            except BaseException:
                (self.path / f"{name}.failed").write_text(f"{name}\n{traceback.format_exc()}")
            os._exit(code)
        self.pids.append(pid)

    def wait(self):
        for pid in self.pids:
            os.waitpid(pid, 0)
        failures = [p.read_text() for p in self.path.glob("*.failed")]
        assert not failures, "\n".join(failures)


def in_time(end):
    while time.monotonic() < end:
        yield


def alone(top, seed, end):
    """Works below its own directory (a descriptor), by relative paths, and knows what must be there."""
    r, files, dirs = random.Random(seed), {}, {""}
    os.fchdir(top)

    def new_name():
        return os.path.join(r.choice(sorted(dirs)), f"n{r.randrange(30)}")

    for _ in in_time(end):
        op, name = r.randrange(9), new_name()
        if op < 3 and name not in dirs:
            data = r.randbytes(r.choice([0, 10, 3000, 50000]))
            write(name, data, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            files[name] = data
        elif op == 3 and name not in files and name not in dirs:
            os.mkdir(name)
            dirs.add(name)
        elif op == 4 and files:
            victim = r.choice(sorted(files))
            os.unlink(victim)
            del files[victim]
        elif op == 5 and files and name not in dirs:
            source = r.choice(sorted(files))
            os.rename(source, name)
            data = files.pop(source)
            files[name] = data
        elif op == 6 and len(dirs) > 1:
            source = r.choice(sorted(dirs - {""}))
            inside = name.startswith(source + "/") or name == source
            if not inside and name not in files and name not in dirs:
                os.rename(source, name)
                for d in [d for d in dirs if d == source or d.startswith(source + "/")]:
                    dirs.remove(d)
                    dirs.add(name + d[len(source):])
                for f in [f for f in files if f.startswith(source + "/")]:
                    files[name + f[len(source):]] = files.pop(f)
        elif op == 7 and len(dirs) > 1:
            victim = r.choice(sorted(dirs - {""}))
            if not any(x.startswith(victim + "/") for x in [*files, *dirs]):
                os.rmdir(victim)
                dirs.remove(victim)
        elif files:
            name = r.choice(sorted(files))
            assert read(name) == files[name], name
    # By hand: relpath() asks for the working directory's name, which is changing.
    seen = {os.path.join(root, f)[2:] for root, _, names in os.walk(".") for f in names}
    assert seen == set(files), (sorted(seen ^ set(files))[:5])
    for name, data in files.items():
        assert read(name) == data, name


def rename_around(top, names, end):
    """Moves directories under the feet of those who work in them."""
    r, at = random.Random(1), {n: n for n in names}
    for i, _ in enumerate(in_time(end)):
        n = r.choice(names)
        to = f"{r.choice(['', 'sub/'])}{n}-{i % 5}"
        os.rename(os.path.join(top, at[n]), os.path.join(top, to))
        at[n] = to
        time.sleep(0.001)
    for n in names:
        os.rename(os.path.join(top, at[n]), os.path.join(top, n))


def look_around(top, end):
    """Reads everything; things may vanish, but nothing else may go wrong."""
    for _ in in_time(end):
        for root, dirs, names in os.walk(top, onerror=check_vanished):
            for n in names + dirs:
                try:
                    os.lstat(os.path.join(root, n))
                except OSError as e:
                    check_vanished(e)


def check_vanished(e):
    assert e.errno in (errno.ENOENT, errno.ENOTDIR), e


def same_names(top, seed, end):
    """Several processes do this in one directory: each result must be one of those that can be."""
    r, ok = random.Random(seed), (errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.EINVAL)
    for _ in in_time(end):
        a, b = (os.path.join(top, f"s{r.randrange(6)}") for _ in range(2))
        try:
            op = r.randrange(8)
            if op == 0:
                write(a, b"x" * r.randrange(5000))
            elif op == 1:
                os.unlink(a)
            elif op == 2:
                os.rename(a, b)
            elif op == 3:
                os.mkdir(a)
                write(os.path.join(a, "f"), b"f")
            elif op == 4:
                os.unlink(os.path.join(a, "f"))
                os.rmdir(a)
            elif op == 5:
                os.link(a, b)
            elif op == 6:
                fd = os.open(a, os.O_RDWR | os.O_CREAT, 0o600)
                os.unlink(a)
                os.pwrite(fd, b"y" * 100, 0)
                os.fstat(fd)
                os.close(fd)
            else:
                os.stat(a)
        except OSError as e:
            assert e.errno in ok or (e.errno == errno.EPERM and op == 5), (op, e)


@pytest.mark.parametrize("cache", [0, 1])
def test_processes_do_not_disturb_each_other(area, make_union, passthrough, cache):
    union = make_union(3, passthrough=passthrough, options=f"cache.entry={cache},cache.attr={cache}")
    names = ["w0", "w1", "w2"]
    for n in [*names, "sub", "same"]:
        (union.path / n).mkdir()
    end, p = time.monotonic() + SECONDS, Processes(area.path)
    fds = [os.open(union.path / n, os.O_RDONLY | os.O_DIRECTORY) for n in names]
    for i, fd in enumerate(fds):
        p.add(alone, fd, i, end)
    p.add(rename_around, union.path, names, end)
    p.add(look_around, union.path, end)
    for i in range(3):
        p.add(same_names, union.path / "same", 100 + i, end)
    for fd in fds:
        os.close(fd)
    p.wait()
    # All that is known by number was forgotten, or will be: the union ends cleanly.
    union.restart()
    sum(1 for _ in os.walk(union.path))


def writer(path, seed, end):
    r, fd = random.Random(seed), os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    content = bytearray(MIB)
    os.pwrite(fd, bytes(content), 0)
    for _ in in_time(end):
        offset, data = r.randrange(MIB - 5000), r.randbytes(r.randrange(1, 5000))
        os.pwrite(fd, data, offset)
        content[offset:offset + len(data)] = data
        if r.randrange(50) == 0:
            os.fsync(fd)
        if r.randrange(50) == 0:
            assert os.pread(fd, MIB, 0) == bytes(content)
        if r.randrange(100) == 0:
            os.close(fd)
            fd = os.open(path, os.O_RDWR)
    assert hashlib.sha256(os.pread(fd, MIB, 0)).digest() == hashlib.sha256(content).digest()


def test_files_are_what_was_written_under_load(area, make_union, passthrough):
    union = make_union(2, passthrough=passthrough)
    end, p = time.monotonic() + SECONDS / 2, Processes(area.path)
    for i in range(6):
        p.add(writer, union.path / f"f{i}", i, end)
    p.wait()


def opener(path, seed, end):
    r = random.Random(seed)
    for _ in in_time(end):
        flags = r.choice([os.O_RDONLY, os.O_RDWR, os.O_RDWR | os.O_APPEND, os.O_RDONLY | os.O_DIRECT])
        fd = os.open(path, flags)
        os.fstat(fd)
        if not flags & os.O_DIRECT:
            assert os.pread(fd, 10, 0) == b"0123456789"
        os.close(fd)


def test_one_file_is_opened_by_all_in_all_ways(area, make_union, passthrough):
    union = make_union(2, passthrough=passthrough)
    write(union.path / "f", b"0123456789" * 1000)
    end, p = time.monotonic() + SECONDS / 2, Processes(area.path)
    for i in range(6):
        p.add(opener, union.path / "f", i, end)
    p.wait()


def syncer(top, i, end):
    for k, _ in enumerate(in_time(end)):
        write(os.path.join(top, f"t{i}"), b"%d" % k)
        os.rename(os.path.join(top, f"t{i}"), os.path.join(top, f"f{k % 3}"))
        fsync_dir(top)


def test_many_may_sync_at_once(area, make_union):
    union = make_union(2)
    end, p = time.monotonic() + SECONDS / 2, Processes(area.path)
    for i in range(12):
        p.add(syncer, union.path, i, end)
    p.wait()
    assert sorted(os.listdir(union.path))[:3] == ["f0", "f1", "f2"]


def remake(path, end):
    """Gives one inode number to file after file."""
    for _ in in_time(end):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
        os.unlink(path)


def test_file_whose_inode_is_being_reused_is_gone(area, make_union):
    union = make_union(1, options="cache.entry=0,cache.attr=0")
    branch, end, p = union.branches[0], time.monotonic() + SECONDS / 2, Processes(area.path)
    write(union.path / "file", b"data")
    fd = os.open(union.path / "file", os.O_PATH)
    os.unlink(branch / "file")
    p.add(remake, branch / "other", end)
    for _ in in_time(end):
        with pytest.raises(OSError) as e:
            os.fstat(fd)
        assert e.value.errno == errno.ESTALE
    os.close(fd)
    p.wait()
