"""The same random operations on a union and on a plain ext4 directory: every result and the trees must agree."""

import errno
import os
import random
import stat

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import (IS_ASAN, IS_TSAN, MIB, O_TMPFILE, RENAME_EXCHANGE, RENAME_NOREPLACE,
                          assert_same_tree, renameat2)

OPS = int(os.environ.get("UNIONFS_OPS", 600 if IS_TSAN or IS_ASAN else 3000))
SEEDS = [int(s) for s in os.environ.get("UNIONFS_SEEDS", "1,2").split(",")]


class Side:
    """One of the two trees, with open files."""

    def __init__(self, top):
        self.top, self.files = str(top), {}

    def p(self, name):
        return os.path.join(self.top, name)


def do_write(s, name, data, flags, mode):
    fd = os.open(s.p(name), flags, mode)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def do_read(s, name):
    fd = os.open(s.p(name), os.O_RDONLY)
    try:
        return os.read(fd, 1 << 22)
    finally:
        os.close(fd)


def do_stat(s, name):
    st = os.lstat(s.p(name))
    is_dir = stat.S_ISDIR(st.st_mode)
    return (st.st_mode, st.st_uid, st.st_gid, None if is_dir else (st.st_nlink, st.st_size, st.st_rdev))


def do_open(s, name, key, flags):
    s.files[key] = os.open(s.p(name), flags, 0o640)


def do_tmpfile(s, name, key):
    s.files[key] = os.open(s.p(os.path.dirname(name)), O_TMPFILE | os.O_RDWR, 0o600)


def do_close(s, key):
    os.close(s.files.pop(key))


def do_fwrite(s, key, data, offset):
    return os.pwrite(s.files[key], data, offset)


def do_fread(s, key):
    st = os.fstat(s.files[key])
    return (st.st_size, st.st_nlink, os.pread(s.files[key], 1 << 22, 0))


def do_link_fd(s, key, name):
    os.link(f"/proc/self/fd/{s.files[key]}", s.p(name), follow_symlinks=True)


def do_copy_range(s, a, b, n):
    done = 0  # it may copy less at a time
    while done < n and (k := os.copy_file_range(s.files[a], s.files[b], n - done, done, done)):
        done += k
    return done


def do_data_hole(s, key):
    return os.lseek(s.files[key], 0, os.SEEK_HOLE) >= 0  # where depends on how blocks were allocated


def do_names(s, name):
    return sorted((e.name, e.is_dir(follow_symlinks=False), e.is_symlink()) for e in os.scandir(s.p(name)))


class Run:
    def __init__(self, union, plain, seed, set_ids):
        # With passthrough, a write clears set-id bits also for root: the kernel writes as the
        # daemon, which must not keep them for others.
        self.file_modes = [0o644, 0o600, 0o1777, 0o755] + ([0o4755, 0o2755] if set_ids else [])
        self.a, self.b, self.r = Side(union), Side(plain), random.Random(seed)
        self.keys, self.next_key, self.log, self.known = [], 0, [], []

    def name(self, depth=3):
        if self.known and self.r.random() < 0.5:  # one that is likely to exist
            return self.r.choice(self.known)
        parts = [self.r.choice("abcdefgh") for _ in range(self.r.randint(1, depth))]
        return "/".join(parts)

    def both(self, fn, *args):
        """Runs on both; the union first."""
        results = []
        for s in (self.a, self.b):
            try:
                results.append(("ok", fn(s, *args)))
            except OSError as e:  # XFS has another name for it
                results.append(("error", errno.ENOTEMPTY if e.errno == errno.EEXIST else e.errno))
        self.log.append((fn.__name__, [a if not isinstance(a, bytes) else len(a) for a in args], results[0][0]))
        assert results[0] == results[1], (
            f"op {len(self.log)}: {fn.__name__}{args}: union {str(results[0])[:200]}, "
            f"plain {str(results[1])[:200]}; before: {self.log[-6:]}")
        if results[0][0] == "ok" and fn in (do_write, do_stat, do_open, do_names):
            self.known = (self.known + [args[0]])[-40:]
        return results[0]

    def data(self):
        n = self.r.choice([0, 1, 17, 4096, 5000, 70000, 300000])
        return self.r.randbytes(1) * n

    def step(self):
        r = self.r
        op = r.randrange(100)
        n, m = self.name(), self.name()
        if op < 14:
            flags = os.O_WRONLY | os.O_CREAT | r.choice([0, os.O_TRUNC, os.O_APPEND, os.O_EXCL])
            if not self.is_fifo(n):  # opening one waits for a reader
                self.both(do_write, n, self.data(), flags, r.choice([0o644, 0o600, 0o755]))
        elif op < 24:
            mode = r.choice([0o755, 0o700, 0o2775, 0o1777])
            self.both(lambda s, x: os.mkdir(s.p(x), mode), n)
        elif op < 30:
            self.both(lambda s, x: os.unlink(s.p(x)), n)
        elif op < 35:
            self.both(lambda s, x: os.rmdir(s.p(x)), n)
        elif op < 50:
            self.both(lambda s, x, y: os.rename(s.p(x), s.p(y)), n, m)
        elif op < 52:
            self.both(lambda s, x, y: renameat2(s.p(x), s.p(y), RENAME_NOREPLACE), n, m)
        elif op < 54:
            self.exchange(n, m)
        elif op < 58:
            self.both(lambda s, x, y: os.link(s.p(x), s.p(y), follow_symlinks=False), n, m)
        elif op < 61:
            self.both(lambda s, x, y: os.symlink(y, s.p(x)), n, m)
        elif op < 62:
            self.both(lambda s, x: os.mkfifo(s.p(x), 0o640), n)
        elif op < 66:
            mode = r.choice(self.file_modes)
            self.both(lambda s, x: os.chmod(s.p(x), mode), n) if not self.is_link(n) else None
        elif op < 68:
            uid, gid = r.choice([0, 1000, 1001]), r.choice([0, 1000])
            self.both(lambda s, x: os.chown(s.p(x), uid, gid, follow_symlinks=False), n)
        elif op < 70:
            t = r.randrange(1 << 30) * 10 ** 9 + 7
            self.both(lambda s, x: os.utime(s.p(x), ns=(t, t), follow_symlinks=False), n)
        elif op < 73:
            key, value, flags = f"user.{r.choice('xyz')}", self.data()[:1000], r.choice([0, 1, 2])
            self.both(lambda s, x: os.setxattr(s.p(x), key, value, flags, follow_symlinks=False), n)
        elif op < 74:
            self.both(lambda s, x: os.removexattr(s.p(x), "user.x", follow_symlinks=False), n)
        elif op < 76:
            self.both(lambda s, x: sorted(os.listxattr(s.p(x), follow_symlinks=False)), n)
        elif op < 78:
            size = r.choice([0, 10, 4096, 100000])
            self.both(lambda s, x: os.truncate(s.p(x), size), n) if not self.is_fifo(n) else None
        elif op < 81:
            self.both(do_read, n) if not self.is_fifo(n) else None
        elif op < 86:
            self.both(do_stat, n)
        elif op < 89:
            self.both(do_names, n if r.random() < 0.8 else ".")
        elif op < 92:
            if not self.is_fifo(n):
                self.open_file(do_open, n, r.choice([os.O_RDWR, os.O_RDWR | os.O_CREAT, os.O_RDWR | os.O_TRUNC]))
        elif op < 93:
            self.open_file(do_tmpfile, n)
        elif self.keys:
            self.with_file(op, m)

    def open_file(self, fn, name, *args):
        self.next_key += 1
        if self.both(fn, name, self.next_key, *args)[0] == "ok":
            self.keys.append(self.next_key)
        if len(self.keys) > 12:
            self.both(do_close, self.keys.pop(0))

    def with_file(self, op, name):
        key = self.r.choice(self.keys)
        if op < 95:
            self.both(do_fwrite, key, self.data(), self.r.choice([0, 100, 200000]))
        elif op < 97:
            self.both(do_fread, key)
        elif op < 98:
            self.both(do_link_fd, key, name)
        elif op < 99:
            self.both(do_copy_range, key, self.r.choice(self.keys), 50000)
        else:
            self.both(do_data_hole, key)

    def exchange(self, n, m):
        """Between branches it is refused, which programs must expect."""
        try:
            renameat2(self.a.p(n), self.a.p(m), RENAME_EXCHANGE)
        except OSError as e:
            if e.errno != errno.EINVAL:
                with pytest.raises(OSError) as other:
                    renameat2(self.b.p(n), self.b.p(m), RENAME_EXCHANGE)
                assert other.value.errno == e.errno
            return
        renameat2(self.b.p(n), self.b.p(m), RENAME_EXCHANGE)

    def mode_of(self, name):
        try:
            return os.stat(self.b.p(name)).st_mode
        except OSError:
            return 0

    def is_fifo(self, name):
        return stat.S_ISFIFO(self.mode_of(name))

    def is_link(self, name):
        return os.path.islink(self.b.p(name))

    def close_files(self):
        while self.keys:
            self.both(do_close, self.keys.pop())

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for s in (self.a, self.b):  # after a failure: or the union would be in use
            for fd in s.files.values():
                os.close(fd)


def check_branches(union):
    """No file is on two branches, and copies of a directory look alike."""
    seen = {}
    for b in union.branches:
        for root, dirs, files in os.walk(b):
            rel = os.path.relpath(root, b)
            for f in files:
                name = os.path.join(rel, f)
                assert name not in seen, f"{name} is on two branches"
                seen[name] = b


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("policy", ["mfs", "epmfs"])
def test_random_operations_have_the_results_of_a_plain_directory(area, make_union, passthrough, policy, seed):
    union = make_union(3, options=f"policy={policy}", passthrough=passthrough)
    plain = area.disk()
    print(f"seed {seed}, {OPS} operations")
    with Run(union.path, plain, seed, set_ids=passthrough == "off") as run:
        for i in range(OPS):
            run.step()
            if i % 1000 == 999:
                assert_same_tree(union.path, plain, f"after {i + 1} operations")
        run.close_files()
    done = sum(entry[2] == "ok" for entry in run.log)
    print(f"{done} of {len(run.log)} operations succeeded")
    assert done > len(run.log) / 4
    assert_same_tree(union.path, plain, "at the end")
    check_branches(union)
    union.restart()
    assert_same_tree(union.path, plain, "after a restart")


@pytest.mark.parametrize("fs", ["xfs", "btrfs"])
def test_random_operations_on_other_filesystems(area, make_union, fs):
    size = {"xfs": 400 * MIB, "btrfs": 200 * MIB}[fs]
    union = make_union(2, fs=fs, size=size)
    plain = area.disk(size, fs)
    with Run(union.path, plain, 5, set_ids=False) as run:
        for _ in range(OPS // 3):
            run.step()
        run.close_files()
    assert_same_tree(union.path, plain, "at the end")
