"""The command lines of mergerfs and gogomergerfs."""

import errno
import fcntl
import os
import pathlib
import signal
import subprocess
import time

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import (MIB, SLOW, UNION_FS, Ready, errno_of, is_mounted, mounts, read, run, wait_for, write)


@pytest.fixture
def gogo(area):
    """gogomergerfs as it is installed: under that name."""
    link = area.path / "gogomergerfs"
    link.symlink_to(UNION_FS)
    return link


@pytest.fixture
def place(area):
    """Directories as in the attach pod: branches/branch0, branches/branch1, merged."""
    for name in ("branch0", "branch1"):
        (area.path / "branches" / name).mkdir(parents=True)
    area.dir("merged")
    return area.path


def processes(path):
    return [int(p) for p in run("pgrep", "-f", str(path), check=False).stdout.split()]


def unmount(path):
    run("umount", path)
    wait_for(lambda: not [p for p in processes(path) if is_running(p)], "end of the process")


def is_running(pid):
    try:
        return "State:\tZ" not in pathlib.Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


# ---------------------------------------------------------------------- mergerfs

def test_it_returns_when_the_union_is_mounted(place):
    r = run(UNION_FS, "-o", "category.create=mfs,minfreespace=1M", f"{place}/branches/branch0:{place}/branches/branch1",
            place / "merged")
    assert (r.stdout, r.stderr) == (b"", b"")
    assert (str(place / "merged"), "fuse.union-fs") in [m[:2] for m in mounts()]
    write(place / "merged/f", b"x")
    unmount(place / "merged")


def test_relative_paths_and_options_behind_them(place):
    r = run(UNION_FS, "branches/b*", "merged", "-o", "fsname=pool", cwd=place)
    assert r.returncode == 0
    assert (str(place / "merged"), "fuse.union-fs", "pool") in mounts()
    write(place / "merged/f", b"x")
    assert (place / "branches/branch0/f").exists() or (place / "branches/branch1/f").exists()
    unmount(place / "merged")


@pytest.mark.parametrize("args,words", [
    ([], "branches and a target"), (["a"], "branches and a target"), (["a", "b", "c"], "branches and a target"),
    (["-o", "dirsync", "{b}", "{m}"], "`dirsync`"), (["-o", "sync", "{b}", "{m}"], "`sync`"),
    (["-o", "nonsense", "{b}", "{m}"], "`nonsense` is not known"), (["-o", "cache.files=off", "{b}", "{m}"], "`cache.files=off`"),
    (["-o", "category.create=ff", "{b}", "{m}"], "policy `ff`"), (["-o", "minfreespace=x", "{b}", "{m}"], "`x` is not a size"),
    (["-o", "cache.entry", "{b}", "{m}"], "needs a value"), (["-o", "threads=1000", "{b}", "{m}"], "`1000`"),
    (["-o", "bind", "{b}", "{m}"], "`bind`"), (["{b}/none*", "{m}"], "no directory matches"), (["a::b", "{m}"], "empty"),
    (["--nonsense"], "nonsense")])
def test_a_wrong_command_line_is_a_usage_error(place, args, words):
    args = [a.format(b=place / "branches", m=place / "merged") for a in args]
    r = run(UNION_FS, *args, check=False)
    assert r.returncode == 2 and words in r.stderr.decode(), r.stderr.decode()
    assert not is_mounted(place / "merged")


@pytest.mark.parametrize("branches,target,words", [
    ("{p}/none", "{p}/merged", "{p}/none"), ("{p}/branches/branch0", "{p}/none", "{p}/none"),
    ("{p}/branches/branch0", "{p}/file", "{p}/file"), ("{p}/branches/branch0", "/", "root directory"),
    ("{p}/branches/branch0:{p}/branches/../branches/branch0", "{p}/merged", "same directory")])
def test_what_cannot_be_mounted_fails_with_one_line(place, branches, target, words):
    (place / "file").write_text("")
    r = run(UNION_FS, branches.format(p=place), target.format(p=place), check=False)
    assert r.returncode == 1 and len(r.stderr.decode().splitlines()) == 1 and words.format(p=place) in r.stderr.decode()
    assert not is_mounted(place / "merged")


def test_help_and_version():
    assert b"usage:" in run(UNION_FS, "--help").stdout
    assert run(UNION_FS, "-V").stdout.startswith(b"union-fs ")


def test_options_that_mergerfs_ignores_are_accepted(place):
    run(UNION_FS, "-o", "defaults,allow_other,use_ino,nonempty,big_writes", "-o", "ro", place / "branches/branch0",
        place / "merged")
    assert errno_of(write, place / "merged/f", b"") == errno.EROFS
    unmount(place / "merged")


def test_branch_modes(area, make_union):
    b = [area.disk() for _ in range(3)]
    for i, d in enumerate(b):
        write(d / f"f{i}", b"x")
    # The one with most space must not be used, nor the one that is too full.
    write(b[2] / "fill", bytes(20 * MIB))
    write(b[1] / "fill", bytes(10 * MIB))
    u = make_union(branches=[f"{b[0]}=NC", f"{b[1]}=RW,1T", f"{b[2]}=rw"])
    write(u.path / "new", b"n")
    assert u.where("new") == [2]
    u.stop()
    u = make_union(branches=[f"{b[0]}=RO", f"{b[1]}=RO", f"{b[2]}=RO"])
    assert errno_of(write, u.path / "other", b"") == errno.ENOSPC
    for change in (lambda: os.unlink(u.path / "f0"), lambda: os.chmod(u.path / "f0", 0o600),
                   lambda: write(u.path / "f0", b""), lambda: os.rename(u.path / "f0", u.path / "g"),
                   lambda: os.truncate(u.path / "f0", 0), lambda: os.link(u.path / "f0", u.path / "g"),
                   lambda: os.setxattr(u.path / "f0", "user.x", b""), lambda: os.chmod(u.path, 0o700),
                   lambda: os.utime(u.path / "f0"), lambda: os.setxattr(u.path, "user.x", b"")):
        assert errno_of(change) == errno.EROFS
    assert read(u.path / "f0") == b"x"


def test_a_dead_union_at_the_target_is_replaced(place):
    run(UNION_FS, place / "branches/branch0", place / "merged")
    pid = next(p for p in processes(place / "merged") if is_running(p))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: errno_of(os.stat, place / "merged") == errno.ENOTCONN, "dead union")
    run(UNION_FS, place / "branches/branch0", place / "merged")
    assert len([m for m in mounts() if m[0] == str(place / "merged")]) == 1
    write(place / "merged/f", b"x")
    unmount(place / "merged")


def test_a_union_inside_of_its_own_branch_is_seen_and_not_entered(area, make_union):
    b = area.disk()
    (b / "m").mkdir()
    write(b / "f", b"x")
    u = make_union(branches=[b], target=b / "m", options="cache.entry=0,cache.attr=0")
    assert read(u.path / "f") == b"x"
    assert errno_of(os.stat, u.path / "m") == errno.ELOOP
    assert sorted(os.listdir(u.path)) == ["f", "m"]


# ------------------------------------------------------------------- gogomergerfs

def test_gogomergerfs_without_block_returns_when_it_is_mounted(gogo, place):
    r = run(gogo, "mergerfs", "-ofsname=x,category.create=mfs",
            f"--branches={place}/branches/branch0,{place}/branches/branch1", f"--target={place}/merged")
    assert r.returncode == 0
    assert (str(place / "merged"), "fuse.union-fs", "x") in mounts()
    unmount(place / "merged")


@pytest.mark.parametrize("args", [
    ["--branches={p}/branches/*", "--target={p}/merged", "--block"],
    ["--branches", "{p}/branches/branch0", "--branches", "{p}/branches/branch1", "--target", "{p}/merged", "--block=true"],
    ["--branches={p}/branches/branch0,{p}/branches/branch1", "--target={p}/merged", "--options=fsname=x", "--block=1"]])
@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_gogomergerfs_blocks_until_a_signal_and_unmounts(area, gogo, place, args, sig):
    ready = Ready(area.path / "notify")
    p = area.popen(gogo, "mergerfs", *[a.format(p=place) for a in args], stderr=subprocess.PIPE,
                   env={**os.environ, "NOTIFY_SOCKET": ready.path})
    assert ready.wait(p)
    write(place / "merged/f", b"x")
    assert p.poll() is None
    p.send_signal(sig)
    assert p.wait(20 * SLOW) == 0, p.stderr.read()
    assert not is_mounted(place / "merged")
    ready.close()


def test_not_mounted_any_more_is_no_error(area, gogo, place):
    ready = Ready(area.path / "notify")
    p = area.popen(gogo, "mergerfs", f"--branches={place}/branches/*", f"--target={place}/merged", "--block",
                   env={**os.environ, "NOTIFY_SOCKET": ready.path})
    assert ready.wait(p)
    fd = os.open(place / "merged", os.O_RDONLY)  # keeps it alive
    run("umount", "-l", place / "merged")
    p.send_signal(signal.SIGTERM)
    time.sleep(0.1)
    os.close(fd)
    assert p.wait(20 * SLOW) == 0
    ready.close()


def test_a_second_signal_exits_with_1(area, gogo, place):
    ready = Ready(area.path / "notify")
    p = area.popen(gogo, "mergerfs", f"--branches={place}/branches/*", f"--target={place}/merged", "--block",
                   env={**os.environ, "NOTIFY_SOCKET": ready.path})
    assert ready.wait(p)
    fd = os.open(place / "merged", os.O_RDONLY)
    p.send_signal(signal.SIGTERM)
    wait_for(lambda: not is_mounted(place / "merged"), "unmount")
    assert p.poll() is None
    p.send_signal(signal.SIGINT)
    assert p.wait(20) == 1
    os.close(fd)
    ready.close()


@pytest.mark.parametrize("args,words", [
    ([], "`mergerfs`"), (["serve"], "`mergerfs`"), (["mergerfs"], "--branches is needed"),
    (["mergerfs", "--branches={p}/branches/*"], "--target is needed"),
    (["mergerfs", "--branches={p}/branches/*", "--target={p}/merged", "--block=maybe"], "--block=maybe"),
    (["mergerfs", "--branches={p}/branches/*", "--target={p}/merged", "extra"], "`extra`"),
    (["mergerfs", "--branches={p}/none/*", "--target={p}/merged"], "no directory matches"),
    (["mergerfs", "--branches={p}/branches/*", "--target={p}/merged", "-o", "xyz"], "`xyz`")])
def test_gogomergerfs_refuses_wrong_command_lines(gogo, place, args, words):
    r = run(gogo, *[a.format(p=place) for a in args], check=False)
    assert r.returncode == 2 and words in r.stderr.decode(), r.stderr.decode()


class Pod:
    """A PID and mount namespace with /volume as in the attach pod of Listing 3.4."""

    def __init__(self, area, command):
        for name in ("branches/branch0-split", "branches/branch1-split", "merged"):
            (area.path / "volume" / name).mkdir(parents=True)
        self.lock = os.open("/", os.O_RDONLY)  # who removes /volume would unmount what others have there
        fcntl.flock(self.lock, fcntl.LOCK_EX)
        self.volume, self.had_volume = area.path / "volume", os.path.exists("/volume")
        script = f"mkdir -p /volume && mount --bind {self.volume} /volume && PATH={area.path}:$PATH && {command}"
        self.process = area.popen("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script,
                                  stderr=subprocess.PIPE)
        wait_for(lambda: self.init() and b" /volume/merged " in self.proc("mountinfo"), "union in the namespace")

    def init(self):
        children = pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return int(children[0]) if children else 0

    def proc(self, name):
        return pathlib.Path(f"/proc/{self.init()}/{name}").read_bytes()

    def enter(self, command):
        return run("nsenter", "-t", self.init(), "-p", "-m", "-r", "sh", "-c", command, check=False).stdout

    def close(self):
        if not self.had_volume and os.path.isdir("/volume"):
            os.rmdir("/volume")
        os.close(self.lock)


def test_it_works_as_process_1(area, gogo):
    pod = Pod(area, "exec gogomergerfs mergerfs --branches='/volume/branches/*' --target=/volume/merged --block")
    try:
        assert pod.proc("comm") == b"gogomergerfs\n"
        write(f"/proc/{pod.init()}/root/volume/merged/f", b"x")
        pod.enter("(sleep 0.05 &)")  # loses its parent, and is ours
        wait_for(lambda: b"sleep" not in pod.enter("ps -e -o comm="), "reaping")
        os.kill(pod.init(), signal.SIGTERM)
        assert pod.process.wait(20 * SLOW) == 0, pod.process.stderr.read()
        assert [f for b in ("branch0-split", "branch1-split") for f in os.listdir(pod.volume / "branches" / b)] == ["f"]
    finally:
        pod.close()


def test_the_attach_pods_own_command_line(area, gogo):
    """Letter by letter.  Where the shell does not make way it is process 1, and hears no SIGTERM: we do."""
    pod = Pod(area, 'exec /bin/sh -c "gogomergerfs mergerfs --branches=/volume/branches/* '
                    '--target=/volume/merged --block"')
    try:
        write(f"/proc/{pod.init()}/root/volume/merged/f", b"x")
        pod.enter("kill -TERM $(ps -e -o pid=,comm= | awk '$2 == \"gogomergerfs\" {print $1}')")
        assert pod.process.wait(20 * SLOW) == 0, pod.process.stderr.read()
    finally:
        pod.close()
