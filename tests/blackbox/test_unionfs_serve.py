"""union-fs serve: the volume server, its socket, what it refuses, and how it ends."""

import errno
import fcntl
import json
import os
import pathlib
import signal
import socket
import subprocess
import time

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import (MIB, SLOW, Server, UNION_FS, device_branch, errno_of, is_mounted, mounts, read, run, tree,
                          wait_for, write)


def start_in_background(area, spec, directory, *args):
    """As the driver does: the description on standard input, output into pipes."""
    return subprocess.run([str(UNION_FS), "serve", f"--dir={directory}", *args], input=json.dumps(spec).encode(),
                          capture_output=True, timeout=60 * SLOW, check=False)


def refusal(area, server):
    """What a server that must not start says."""
    server.start(wait=False)
    assert server.wait() == 1
    words = server.words()
    assert len([line for line in words.splitlines() if line.startswith("union-fs: ")]) == 1, words
    assert not is_mounted(server.path)
    assert not (server.dir / "ctl.sock").exists()
    return words


# ------------------------------------------------------------------ ordinary life

@pytest.mark.parametrize("fs,size", [("ext4", 64 * MIB), ("xfs", 400 * MIB), ("btrfs", 200 * MIB)])
def test_a_volume_of_devices_is_made_served_and_found_again(area, make_server, fs, size):
    s = make_server(2, fs=fs, size=size)
    info = [m for m in mounts() if m[0] == str(s.path)]
    assert info == [(str(s.path), "fuse.union-fs", "v1")]
    assert sorted(os.listdir(s.path)) == []  # neither lost+found nor union.json
    os.makedirs(s.path / "a/b")
    for i in range(6):
        write(s.path / f"a/b/{i}", bytes([i]) * MIB)
    before = tree(s.path, times=True)
    s.restart()
    assert tree(s.path, times=True) == before
    s.stop()
    s.spec_file.write_text(json.dumps({**s.spec, "initialise": False}))
    s.start()
    assert tree(s.path, times=True) == before


@pytest.mark.vm
def test_branches_are_in_nobodys_mount_table_and_go_with_the_process(area, make_server):
    s = make_server(2)
    devices = [b["device"] for b in s.spec["branches"]]
    assert not [m for m in mounts() if m[2] in devices]
    with pytest.raises(OSError):
        os.close(os.open(devices[0], os.O_RDWR | os.O_EXCL))
    s.process.kill()
    s.process.wait()
    run("umount", "-l", s.path)
    for d in devices:
        wait_for(lambda d=d: errno_of(lambda: os.close(os.open(d, os.O_RDWR | os.O_EXCL))) == 0, "free device")


@pytest.mark.vm
def test_status_tells_what_is_served(make_server):
    s = make_server(2, policy="epmfs")
    st = s.ask("status")
    assert st["ok"] is True and st["state"] == "ready" and st["volumeId"] == "v1" and st["policy"] == "epmfs"
    assert st["pid"] == s.process.pid
    dev = os.stat(s.path).st_dev
    assert st["mountDev"] == f"{os.major(dev)}:{os.minor(dev)}"
    assert [b["source"] for b in st["branches"]] == [b["device"] for b in s.spec["branches"]]
    for b in st["branches"]:
        assert 0 < b["available"] < b["total"] < 64 * MIB


def test_status_on_the_command_line(area, make_server):
    s = make_server(2)
    r = run(UNION_FS, "status", s.dir)
    assert b"volume       v1\nstate        ready\n" in r.stdout and r.stderr == b""
    lines = r.stdout.decode().splitlines()[-2:]
    assert [(x.split()[0], x.split()[-1]) for x in lines] == [(str(i), b["device"])
                                                             for i, b in enumerate(s.spec["branches"])]
    st = json.loads(run(UNION_FS, "status", "-o", "json", s.dir).stdout)
    assert st["pid"] == s.process.pid and len(st["branches"]) == 2
    r = run(UNION_FS, "status", area.dir("nothing"), check=False)
    assert (r.returncode, r.stdout) == (1, b"") and b"nothing" in r.stderr and r.stderr.count(b"\n") == 1
    for args in ([], ["a", "b"], ["-o", "yaml", "a"], ["--colour"]):
        assert run(UNION_FS, "status", *args, check=False).returncode == 2


def test_where_names_the_branches_of_files_and_directories(area, make_server):
    s = make_server(2)
    device = [b["device"] for b in s.spec["branches"]]
    os.mkdir(s.path / "d")
    for i in range(4):
        write(s.path / f"d/f{i}", bytes(4 * MIB))
    lines = run(UNION_FS, "where", *(s.path / f"d/f{i}" for i in range(4))).stdout.decode().splitlines()
    on = [int(line.split()[0]) for line in lines]
    assert lines == [f"{b} {device[b]}  {s.path}/d/f{i}" for i, b in enumerate(on)] and set(on) == {0, 1}
    assert run(UNION_FS, "where", s.path / "d").stdout.decode().splitlines() == [f"{b} {device[b]}  {s.path}/d"
                                                                               for b in (0, 1)]
    assert os.listxattr(s.path / "d") == [] and os.listxattr(s.path / "d/f0") == []
    for name in ("d", "d/f0"):
        assert errno_of(os.setxattr, s.path / name, "user.union-fs.branches", b"0") == errno.EPERM
        assert errno_of(os.removexattr, s.path / name, "user.union-fs.branches") == errno.EPERM
    r = run(UNION_FS, "where", s.path / "absent", area.path, s.path / "d/f0", check=False)
    assert r.returncode == 1 and r.stdout.count(b"\n") == 1
    assert b"absent` is: No such file" in r.stderr and f"`{area.path}` is not in a union".encode() in r.stderr
    assert run(UNION_FS, "where", check=False).returncode == 2


def test_it_returns_when_the_union_is_mounted_and_says_nothing(area):
    devices = [device_branch(*area.loop()) for _ in range(2)]
    d = area.dir("volume")
    spec = {"version": 1, "volumeId": "v", "branches": devices, "initialise": True}
    try:
        r = start_in_background(area, spec, d, f"--log-file={d}/server.log")
        assert (r.returncode, r.stdout, r.stderr) == (0, b"", b"")
        assert is_mounted(d / "merged")
        s = Server(area, devices, dir=d)
        pid = s.ask("status")["pid"]
        assert os.getsid(pid) == pid  # a session of its own
        assert os.readlink(f"/proc/{pid}/cwd") == "/"
        assert "is mounted" in (d / "server.log").read_text()
        assert s.ask("stop") == {"ok": True, "state": "ended"}
        wait_for(lambda: not os.path.exists(f"/proc/{pid}") or
                 "State:\tZ" in pathlib.Path(f"/proc/{pid}/status").read_text(), "end of the process")
        assert sorted(os.listdir(d)) == ["merged", "server.log"]
        for b in devices:
            os.close(os.open(b["device"], os.O_RDWR | os.O_EXCL))  # when the answer came, they were free
    finally:
        if is_mounted(d / "merged"):
            run("umount", "-l", d / "merged")


def directory_branch(area):
    top = area.disk().parent
    (top / "d").rmdir()
    return {"directory": str(top)}


def test_directories_can_be_branches(area, make_server):
    branches = [directory_branch(area) for _ in range(2)]
    s = make_server(branches=branches)
    write(s.path / "f", b"x")
    s.stop()
    assert sorted(os.listdir(branches[0]["directory"])) == ["lost+found", "union", "union.json"]
    ident = json.loads(read(os.path.join(branches[1]["directory"], "union.json")))
    assert ident == {"version": 1, "volumeId": "v1", "index": 1, "branches": 2}


def test_a_read_only_volume_takes_no_writes(area, make_server):
    s = make_server(2)
    write(s.path / "f", b"x")
    s.stop()
    s.spec_file.write_text(json.dumps({**s.spec, "readOnly": True}))
    s.start()
    assert read(s.path / "f") == b"x"
    assert errno_of(write, s.path / "g", b"") == errno.EROFS
    assert errno_of(os.unlink, s.path / "f") == errno.EROFS


@pytest.mark.vm
def test_mount_flags_reach_the_union(area, make_server):
    s = make_server(2, mountFlags=["noatime,nosuid", "nodev"])
    line = next(m for m in open("/proc/self/mountinfo") if f" {s.path} " in m)
    assert {"noatime", "nosuid", "nodev"} <= set(line.split()[5].split(","))


# ------------------------------------------------------------------- what is refused

def refused_spec(**changes):
    return {"version": 1, "volumeId": "v", "branches": [{"directory": "/x"}], **changes}


@pytest.mark.parametrize("spec,words", [
    ("", "not valid JSON"), ("[]", "not a JSON object"), ("{}", "`version` is missing"),
    (refused_spec(version=2), "`version` is 2"), (refused_spec(volumeId=""), "`volumeId` is empty"),
    (refused_spec(branches=[]), "`branches`"), (refused_spec(branches=[{}]), "branch 0"),
    (refused_spec(policy="ff"), "policy `ff`"), (refused_spec(extra=1), "`extra` is not known"),
    (refused_spec(branches=[{"device": "/dev/x"}]), "`fsType` is missing"),
    (refused_spec(branches=[{"directory": "x"}]), "not an absolute path"),
    (refused_spec(branches=[{"directory": "/x"}, {"directory": "/x"}]), "are both"),
    (refused_spec(mountFlags=["bind"]), "`bind` is not allowed")])
def test_a_wrong_description_is_refused_by_name(area, spec, words):
    text = spec if isinstance(spec, str) else json.dumps(spec)
    r = subprocess.run([str(UNION_FS), "serve", f"--dir={area.dir('v')}"], input=text.encode(), capture_output=True,
                       check=False)
    assert r.returncode == 1 and words in r.stderr.decode(), r.stderr.decode()
    assert len(r.stderr.decode().splitlines()) == 1


@pytest.mark.parametrize("args,words", [
    ([], "--dir is needed"), (["--dir=/x", "y"], "`y` is not known"), (["--dir=/x", "--log-format=xml"], "`xml`"),
    (["--dir=/x", "--passthrough=maybe"], "`maybe`"), (["--dir=/x", "--threads=-1"], "`-1`"), (["--nonsense"], "nonsense")])
def test_a_wrong_command_line_is_a_usage_error(args, words):
    r = run(UNION_FS, "serve", *args, check=False)
    assert r.returncode == 2 and words in r.stderr.decode()


def test_a_device_with_somebody_elses_data_is_refused(area):
    d0, d1 = area.loop(), area.loop()
    point = area.dir("p")
    run("mount", d1[0], point)
    write(point / "precious", b"data")
    run("umount", point)
    words = refusal(area, Server(area, [device_branch(*d0), device_branch(*d1)]))
    assert "`precious`" in words and d1[0] in words
    run("mount", d1[0], point)
    assert sorted(os.listdir(point)) == ["lost+found", "precious"]
    run("umount", point)


def test_an_empty_device_is_refused_unless_it_may_be_initialised(area):
    words = refusal(area, Server(area, [device_branch(*area.loop()) for _ in range(2)], initialise=False))
    assert "it is empty" in words and "union.json" in words


@pytest.mark.parametrize("change,words", [
    ("volume", "belongs to volume `v1`, not to `v2`"), ("order", "it is branch 1, not branch 0"),
    ("count", "one of 2 branches, not one of 1"), ("uuid", "not `00000000-0000-4000-8000-000000000000`"),
    ("fstype", "filesystem ext4, not xfs"), ("data", "data directory `union` is missing"),
    ("damage", "union.json")])
def test_a_branch_that_is_not_the_one_is_refused_and_both_values_are_named(area, make_server, change, words):
    s = make_server(2)
    s.stop()
    b, volume = [dict(x) for x in s.spec["branches"]], "v1"
    if change == "volume":
        volume = "v2"
    elif change == "order":
        b = b[::-1]
    elif change == "count":
        b = b[:1]
    elif change == "uuid":
        b[0]["uuid"] = "00000000-0000-4000-8000-000000000000"
    elif change == "fstype":
        b[0]["fsType"] = "xfs"
    else:
        point = area.dir("p")
        run("mount", b[0]["device"], point)
        if change == "data":
            (point / "union").rmdir()
        else:
            (point / "union.json").write_text("{")
        run("umount", point)
    assert words in refusal(area, Server(area, b, dir=s.dir, volume=volume, initialise=True))


def test_a_device_without_a_filesystem_is_refused(area):
    image = area.path / "blank.img"
    with open(image, "wb") as f:
        f.truncate(16 * MIB)
    device = run("losetup", "--find", "--show", image).stdout.decode().strip()
    words = refusal(area, Server(area, [device_branch(device, "00000000-0000-4000-8000-000000000000")]))
    assert "no filesystem" in words and device in words


def test_initialisation_that_was_interrupted_goes_on(area, make_server):
    devices = [area.loop() for _ in range(2)]
    point = area.dir("p")
    for d, leave in zip(devices, (["union"], ["union", ".union.json.tmp"])):
        run("mount", d[0], point)
        (point / leave[0]).mkdir(mode=0o700)
        for name in leave[1:]:
            (point / name).write_text("{half")
        run("umount", point)
    s = make_server(branches=[device_branch(*d) for d in devices])
    write(s.path / "f", b"x")
    assert os.stat(s.path).st_mode & 0o777 == 0o755


def test_two_servers_for_one_directory_are_impossible(area, make_server):
    s = make_server(2)
    other = [device_branch(*area.loop()) for _ in range(2)]
    second = Server(area, other, dir=s.dir, volume="v1")
    second.start(wait=False)
    assert second.wait() == 1
    assert "another server" in second.words()
    assert s.ask("status")["pid"] == s.process.pid
    write(s.path / "f", b"still works")


@pytest.mark.vm
@pytest.mark.parametrize("kind", ["device", "directory"])
def test_two_servers_for_one_branch_are_impossible(area, make_server, kind):
    mine = [device_branch(*area.loop()) if kind == "device" else directory_branch(area) for _ in range(2)]
    s = make_server(branches=mine)
    second = Server(area, mine, volume="v1")
    second.start(wait=False)
    assert second.wait() == 1
    assert "branch 0" in second.words() and "another server serves it" in second.words()
    write(s.path / "f", b"still works")
    s.process.kill()
    s.wait()
    run("umount", s.path)
    other = make_server(branches=mine)  # the lock went with the process
    assert read(other.path / "f") == b"still works"


def test_servers_that_only_read_share_branches(area, make_server):
    mine = [directory_branch(area) for _ in range(2)]
    s = make_server(branches=mine)
    write(s.path / "f", b"x")
    s.stop()
    readers = [make_server(branches=mine, dir=area.dir(f"reader{i}"), readOnly=True) for i in range(2)]
    assert [read(r.path / "f") for r in readers] == [b"x", b"x"]
    writer = Server(area, mine, dir=area.dir("writer"))
    writer.start(wait=False)
    assert writer.wait() == 1 and "another server serves it" in writer.words()


def test_the_drivers_lock_on_the_directory_is_not_in_the_way(area, make_server):
    s = make_server(2, start=False)
    fd = os.open(s.dir, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    s.start()
    assert s.ask("status")["ok"]
    os.close(fd)


def test_something_else_that_is_mounted_there_is_refused(area):
    d = area.dir("volume")
    (d / "merged").mkdir()
    run("mount", "-t", "tmpfs", "nothing", d / "merged")
    s = Server(area, [device_branch(*area.loop()) for _ in range(2)], dir=d)
    s.start(wait=False)
    assert s.wait() == 1 and "is mounted at" in s.words()
    run("umount", d / "merged")


def test_a_mount_point_that_is_a_symlink_is_refused(area):
    d, elsewhere = area.dir("volume"), area.dir("elsewhere")
    (d / "merged").symlink_to(elsewhere)
    s = Server(area, [device_branch(*area.loop()) for _ in range(2)], dir=d)
    s.start(wait=False)
    assert s.wait() == 1 and not is_mounted(elsewhere)


# --------------------------------------------------------------------- bad endings

def test_a_dead_union_and_its_socket_are_replaced(area, make_server):
    s = make_server(2)
    write(s.path / "f", b"x")
    s.process.kill()
    s.process.wait()
    assert errno_of(os.stat, s.path) == errno.ENOTCONN
    assert (s.dir / "ctl.sock").exists()
    s.start()
    assert read(s.path / "f") == b"x"
    assert len([m for m in mounts() if m[0] == str(s.path)]) == 1


def test_a_dead_union_of_another_volume_is_refused(area, make_server):
    s = make_server(2)
    s.process.kill()
    s.process.wait()
    other = Server(area, s.spec["branches"], dir=s.dir, volume="v2")
    other.start(wait=False)
    assert other.wait() == 1 and "`v1`" in other.words()
    run("umount", "-l", s.path)


def test_a_failed_start_leaves_nothing(area):
    devices = [device_branch(*area.loop()) for _ in range(2)]
    devices[1]["uuid"] = "00000000-0000-4000-8000-000000000000"
    d = area.dir("volume")
    spec = {"version": 1, "volumeId": "v", "branches": devices, "initialise": True}
    r = start_in_background(area, spec, d)
    assert r.returncode == 1 and len(r.stderr.decode().splitlines()) == 1
    assert os.listdir(d) == ["merged"]
    assert not is_mounted(d / "merged")
    assert run("pgrep", "-f", str(d), check=False).stdout == b""
    os.close(os.open(devices[0]["device"], os.O_RDWR | os.O_EXCL))


def test_stop_says_so_when_the_union_is_in_use(make_server):
    s = make_server(2)
    with open(s.path / "f", "w") as f:
        r = s.ask("stop")
        assert r["ok"] is False and r["errno"] == errno.EBUSY
        assert s.ask("status")["state"] == "ready"
        f.write("goes on")
    assert s.ask("stop") == {"ok": True, "state": "ended"}
    assert s.wait() == 0 and not is_mounted(s.path)


def test_stop_says_so_when_the_union_is_mounted_elsewhere(area, make_server):
    s = make_server(2)
    other = area.dir("other")
    run("mount", "--bind", s.path, other)
    r = s.ask("stop")
    assert r["ok"] is False and r["errno"] == errno.EBUSY and "2 places" in r["error"]
    write(other / "f", b"x")
    run("umount", other)
    assert s.ask("stop")["ok"]
    assert s.wait() == 0


def test_a_stopping_server_serves_its_last_user(area, make_server):
    s = make_server(2)
    f = open(s.path / "f", "w+b")
    s.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not is_mounted(s.path), "lazy unmount")
    assert s.ask("status")["state"] == "stopping"
    f.write(b"written after the end")
    f.flush()
    os.fsync(f.fileno())
    f.close()
    assert s.wait() == 0
    assert not (s.dir / "ctl.sock").exists()
    s.start()
    assert read(s.path / "f") == b"written after the end"


def test_a_second_signal_ends_it_at_once(area, make_server):
    s = make_server(2)
    f = open(s.path / "f", "w+b")
    s.process.send_signal(signal.SIGTERM)
    wait_for(lambda: not is_mounted(s.path), "lazy unmount")
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(20) == 1
    with pytest.raises(OSError):
        os.fsync(f.fileno())
    try:
        f.close()
    except OSError:
        pass


def test_who_unmounts_it_ends_it(make_server):
    s = make_server(2)
    run("umount", s.path)
    assert s.wait() == 0
    assert not (s.dir / "ctl.sock").exists()


# ------------------------------------------------------------------- the socket

def raw(s, data, n=65536, shut=False):
    sock = socket.socket(socket.AF_UNIX)
    sock.settimeout(10 * SLOW)
    sock.connect(str(s.dir / "ctl.sock"))
    sock.sendall(data)
    if shut:
        sock.shutdown(socket.SHUT_WR)
    try:
        return sock.recv(n)
    finally:
        sock.close()


@pytest.mark.parametrize("line,num", [
    (b"\n", errno.EINVAL), (b"nonsense\n", errno.EINVAL), (b"[]\n", errno.EINVAL), (b"{}\n", errno.EINVAL),
    (b'{"op": 1}\n', errno.EINVAL), (b'{"op": "format"}\n', errno.EOPNOTSUPP),
    (b'{"op":"stop","op":"status"}\n', errno.EINVAL)])
def test_a_wrong_question_is_answered_with_an_error(make_server, line, num):
    s = make_server(2)
    r = json.loads(raw(s, line))
    assert r["ok"] is False and r["errno"] == num
    assert s.ask("status")["ok"]


def test_an_endless_question_is_cut_off(make_server):
    s = make_server(2)
    with pytest.raises((ConnectionResetError, BrokenPipeError)):
        assert raw(s, b"x" * 100000) == b""
        raise ConnectionResetError
    assert s.ask("status")["ok"]


def test_clients_that_die_or_do_nothing_disturb_nobody(make_server):
    s = make_server(2)
    idle = []
    for _ in range(40):  # more than there may be
        c = socket.socket(socket.AF_UNIX)
        c.connect(str(s.dir / "ctl.sock"))
        idle.append(c)
        try:
            c.sendall(b'{"op":"st')
        except OSError:  # one too many, and closed
            pass
    for c in idle[::2]:
        c.close()
    wait_for(lambda: s_answers(s), "answer")
    for c in idle:
        c.close()
    c = socket.socket(socket.AF_UNIX)
    c.connect(str(s.dir / "ctl.sock"))
    c.sendall(b'{"op":"status"}\n' * 50)
    c.close()  # without reading a word
    assert s.ask("status")["ok"]


def s_answers(s):
    try:
        return s.ask("status", timeout=1)["ok"]
    except (OSError, ValueError):
        return False


def test_only_root_may_connect(make_server):
    s = make_server(2)
    st = os.stat(s.dir / "ctl.sock")
    assert st.st_mode & 0o777 == 0o600 and st.st_uid == 0


def test_status_answers_while_every_worker_waits(area, make_server):
    """The workers are stopped in a filesystem that is frozen, as with a disk that does not answer."""
    points = [area.disk(), area.disk()]
    parents = [p.parent for p in points]
    for p in points:
        p.rmdir()
    s = make_server(branches=[{"directory": str(p)} for p in parents], args=("--threads=2",))
    for i in range(40):  # a directory each: the kernel makes one thing at a time in one
        (s.path / f"d{i}").mkdir()
    for p in parents:
        run("fsfreeze", "-f", p)
    writers = [area.popen("sh", "-c", f"mkdir {s.path}/d{i}/x") for i in range(40)]
    try:
        wait_for(lambda: all_wait(s.process.pid), "thread that waits")
        begin = time.monotonic()
        assert s.ask("status")["ok"]
        assert time.monotonic() - begin < 5 * SLOW
    finally:
        for p in parents:
            run("fsfreeze", "-u", p)
    for w in writers:
        assert w.wait(30 * SLOW) == 0
    assert sum(os.path.isdir(s.path / f"d{i}/x") for i in range(40)) == 40


def all_wait(pid):
    """Whether no thread but the main one waits for a request: all are in a filesystem."""
    tasks = [t for t in pathlib.Path(f"/proc/{pid}/task").iterdir() if t.name != str(pid)]
    return all((t / "wchan").read_text() not in ("fuse_dev_do_read", "0") for t in tasks)


def test_reads_go_on_while_others_wait_for_a_disk(area, make_server):
    """More requests that wait than there were threads at the beginning."""
    parents = [area.disk().parent for _ in range(2)]
    for p in parents:
        (p / "d").rmdir()
    s = make_server(branches=[{"directory": str(p)} for p in parents], args=("--threads=2",))
    write(s.path / "f", b"x")
    for i in range(6):
        (s.path / f"d{i}").mkdir()
    for p in parents:
        run("fsfreeze", "-f", p)
    writers = [area.popen("sh", "-c", f"mkdir {s.path}/d{i}/x") for i in range(6)]
    try:
        wait_for(lambda: len(os.listdir(f"/proc/{s.process.pid}/task")) > 4, "more threads")
        assert run("cat", s.path / "f", timeout=20 * SLOW).stdout == b"x"
    finally:
        for p in parents:
            run("fsfreeze", "-u", p)
    for w in writers:
        assert w.wait(30 * SLOW) == 0


@pytest.mark.vm
def test_a_union_whose_connection_is_aborted_is_detached_and_reported(make_server, area):
    s = make_server()
    write(s.path / "f", b"data")
    run("mount", "-t", "fusectl", "none", area.dir("fusectl"))
    (area.path / "fusectl" / str(os.minor(os.stat(s.path).st_dev)) / "abort").write_text("1")
    assert s.wait() == 1
    assert "aborted" in s.words() and not is_mounted(s.path)
    s.start()
    assert read(s.path / "f") == b"data"
