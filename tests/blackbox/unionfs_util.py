"""Unions on real disks, and what programs do on them.

Nothing here checks anything but that a union ends cleanly: tests do.
"""

import ctypes
import hashlib
import json
import os
import pathlib
import shutil
import signal
import socket
import stat
import struct
import subprocess
import tempfile
import time

import pytest
from disk_util import mount_image

TOP = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN", TOP / "build" / "bin")).resolve()
UNION_FS = pathlib.Path(os.environ.get("UNIONFS_BIN", BIN / "union-fs")).resolve()
IS_TSAN, IS_ASAN = "thread" in str(UNION_FS), "address" in str(UNION_FS)
SLOW = 5 if IS_TSAN or IS_ASAN else 1
KIB, MIB = 1 << 10, 1 << 20

libc = ctypes.CDLL(None, use_errno=True)
RENAME_NOREPLACE, RENAME_EXCHANGE = 1, 2
O_TMPFILE = os.O_TMPFILE


def renameat2(a, b, flags):
    if libc.renameat2(-100, os.fsencode(a), -100, os.fsencode(b), flags) < 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))


def run(*args, **kwargs):
    kwargs.setdefault("check", True)
    kwargs.setdefault("capture_output", True)
    kwargs.setdefault("timeout", 120 * SLOW)
    return subprocess.run([str(a) for a in args], **kwargs)


def mounts():
    """(mount point, type, source) of every mount, in the order in which they were made."""
    out = []
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            out.append((left.split()[4].replace("\\040", " "), *right.split()[:2]))
    return out


def is_mounted(path):
    return any(m[0] == str(path) for m in mounts())


def wait_for(condition, what, seconds=20):
    end = time.monotonic() + seconds * SLOW
    while not condition():
        assert time.monotonic() < end, f"no {what} after {seconds * SLOW} s"
        time.sleep(0.01)


def kernel_has_passthrough():
    return tuple(int(n) for n in os.uname().release.split("-")[0].split(".")[:2]) >= (6, 9)


class Area:
    """A directory with disks; everything below it is unmounted and removed at the end."""

    def __init__(self, path):
        self.path, self.n, self.processes = pathlib.Path(path), 0, []

    def dir(self, name):
        d = self.path / name
        d.mkdir()
        return d

    def image(self, size=96 * MIB, fs="ext4"):
        self.n += 1
        image = self.path / f"disk{self.n}.img"
        with open(image, "wb") as f:
            f.truncate(size)
        options = {"ext4": ["-q", "-m", "0", "-I", "256"], "xfs": ["-q", "-f"], "btrfs": ["-q", "-f"]}[fs]
        run(f"mkfs.{fs}", *options, image)
        return image

    def disk(self, size=96 * MIB, fs="ext4", options="loop"):
        image = self.image(size, fs)
        point = self.dir(f"disk{self.n}")
        mount_image(image, point, options)
        # What is merged, so that lost+found is not.
        d = point / "d"
        d.mkdir()
        return d

    def loop(self, size=96 * MIB, fs="ext4"):
        """A loop device with a filesystem: (device, UUID)."""
        image = self.image(size, fs)
        device = run("losetup", "--find", "--show", image).stdout.decode().strip()
        uuid = run("blkid", "-p", "-s", "UUID", "-o", "value", device).stdout.decode().strip()
        return device, uuid

    def popen(self, *args, **kwargs):
        p = subprocess.Popen([str(a) for a in args], **kwargs)
        self.processes.append(p)
        return p

    def close(self):
        for p in self.processes:
            if p.poll() is None:
                p.kill()
            p.wait()
        for _ in range(5):
            ours = [m[0] for m in mounts() if m[0].startswith(str(self.path) + "/")]
            if not ours:
                break
            for m in reversed(ours):
                run("umount", "-l", m, check=False)
        for line in run("losetup", "-l", "-n", "-O", "NAME,BACK-FILE").stdout.decode().splitlines():
            name, back = (line.split(None, 1) + [""])[:2]  # none: it is just going away
            if back.startswith(str(self.path) + "/"):
                run("losetup", "-d", name, check=False)
        shutil.rmtree(self.path, ignore_errors=True)


@pytest.fixture
def area():
    base = "/dev/shm" if os.path.ismount("/dev/shm") else None
    a = Area(tempfile.mkdtemp(prefix="ufs-", dir=base))
    yield a
    a.close()


class Ready:
    """A socket as a service manager has it: a program says on it that it is ready."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)

    def wait(self, process, seconds=30):
        end = time.monotonic() + seconds * SLOW
        self.socket.settimeout(0.05)
        while time.monotonic() < end:
            try:
                return self.socket.recv(100) == b"READY=1"
            except socket.timeout:
                if process.poll() is not None:
                    return False
        return False

    def close(self):
        self.socket.close()
        os.unlink(self.path)


class Union:
    """A union in the foreground, so that its end and its words can be seen."""

    def __init__(self, area, branches, target=None, options="", passthrough="auto", env=None, args=None):
        self.area, self.branches = area, [pathlib.Path(str(b).split("=")[0]) for b in branches]
        self.path = pathlib.Path(target) if target else area.dir(f"m{len(area.processes)}")
        self.log = area.path / f"union{len(area.processes)}.log"
        options = ",".join(o for o in (f"passthrough={passthrough}", options) if o)
        self.command = args or [UNION_FS, "-f", "-o", options, ":".join(map(str, branches)), self.path]
        self.env, self.process = dict(env or {}), None

    def start(self, wait=True):
        ready = Ready(self.area.path / "notify")
        try:
            with open(self.log, "ab") as log:
                self.process = self.area.popen(*self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                               env={**os.environ, **self.env, "NOTIFY_SOCKET": ready.path})
            if wait:
                assert ready.wait(self.process), self.words()
        finally:
            ready.close()
        return self

    def words(self):
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def wait(self, seconds=30):
        code = self.process.wait(seconds * SLOW)
        for bad in ("Sanitizer", "runtime error", "was refused", "is no request"):
            assert bad not in self.words(), self.words()[-8000:]
        return code

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        code = self.wait()
        assert code == 0, (code, self.words()[-4000:])
        assert not is_mounted(self.path)

    def restart(self):
        self.stop()
        return self.start()

    def kill(self):
        self.process.kill()
        self.process.wait()
        run("umount", "-l", self.path)

    def where(self, name):
        """Indexes of the branches that have a name."""
        return [i for i, b in enumerate(self.branches) if os.path.lexists(b / name)]


@pytest.fixture
def make_union(area):
    """Makes unions that are stopped at the end; each must end cleanly."""
    unions = []

    def make(n=2, fs="ext4", size=96 * MIB, branches=None, **kwargs):
        if branches is None:
            branches = [area.disk(size, fs) for _ in range(n)]
        u = Union(area, branches, **kwargs).start()
        unions.append(u)
        return u

    yield make
    for u in unions:
        if u.process.poll() is None:
            u.stop()


@pytest.fixture(params=["on", "off"])
def passthrough(request):
    if request.param == "on" and not kernel_has_passthrough():
        pytest.skip("the kernel has no FUSE passthrough")
    return request.param


class As:
    """Runs a function as another user, in a process of its own; gives back what it returns or raises."""

    def __init__(self, uid, gid, groups=()):
        self.uid, self.gid, self.groups = uid, gid, list(groups)

    def __call__(self, fn, *args):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                os.setgroups(self.groups)
                os.setresgid(self.gid, self.gid, self.gid)
                os.setresuid(self.uid, self.uid, self.uid)
                try:
                    result = {"value": fn(*args)}
                except OSError as e:
                    result = {"errno": e.errno}
                os.write(w, json.dumps(result).encode())
            finally:
                os._exit(0)
        os.close(w)
        data = b""
        while chunk := os.read(r, 65536):
            data += chunk
        os.close(r)
        os.waitpid(pid, 0)
        result = json.loads(data)
        if "errno" in result:
            raise OSError(result["errno"], os.strerror(result["errno"]))
        return result["value"]


def errno_of(fn, *args, **kwargs):
    """The errno that a call fails with, or 0."""
    try:
        fn(*args, **kwargs)
    except OSError as e:
        return e.errno
    return 0


def write(path, data, flags=os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def read(path):
    with open(path, "rb") as f:
        return f.read()


def fsync_dir(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def acl(*entries):
    """system.posix_acl_*: entries are (tag, permissions, id)."""
    return struct.pack("<I", 2) + b"".join(struct.pack("<HHI", t, p, i & 0xFFFFFFFF) for t, p, i in entries)


ACL_USER_OBJ, ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_MASK, ACL_OTHER = 1, 2, 4, 8, 16, 32


def tree(top, times=False):
    """All that can be seen of a tree; hard links by the first name of each file."""
    out, links = {}, {}
    top = os.fsencode(top)
    for root, dirs, files in os.walk(top):
        dirs.sort()
        for name in sorted(dirs) + sorted(files):
            path = os.path.join(root, name)
            rel = os.path.relpath(path, top)
            st = os.lstat(path)
            entry = {"mode": stat.S_IFMT(st.st_mode) | stat.S_IMODE(st.st_mode), "uid": st.st_uid, "gid": st.st_gid}
            try:
                entry["xattrs"] = {k: os.getxattr(path, k, follow_symlinks=False)
                                   for k in sorted(os.listxattr(path, follow_symlinks=False))}
            except OSError as e:
                entry["xattrs"] = e.errno
            if not stat.S_ISDIR(st.st_mode):
                entry["link"] = links.setdefault((st.st_dev, st.st_ino), rel)
                entry["nlink"], entry["rdev"] = st.st_nlink, st.st_rdev
            if stat.S_ISREG(st.st_mode):
                entry["size"] = st.st_size
                entry["data"] = hashlib.sha256(read(path)).hexdigest()
            if stat.S_ISLNK(st.st_mode):
                entry["target"] = os.readlink(path)
            if times:
                entry["mtime"] = st.st_mtime_ns
            out[rel] = entry
    return out


def assert_same_tree(a, b, what=""):
    ta, tb = tree(a), tree(b)
    only_a, only_b = sorted(set(ta) - set(tb)), sorted(set(tb) - set(ta))
    assert not only_a and not only_b, f"{what}: only in {a}: {only_a[:5]}; only in {b}: {only_b[:5]}"
    for k in ta:
        assert ta[k] == tb[k], f"{what}: {k}: {ta[k]} != {tb[k]}"


class Server(Union):
    """A volume server in the foreground."""

    def __init__(self, area, branches, dir=None, volume="v1", env=None, args=(), **spec):
        self.dir = pathlib.Path(dir) if dir else area.dir(f"volume{len(area.processes)}")
        self.spec = {"version": 1, "volumeId": volume, "branches": list(branches), "policy": "mfs",
                     "minFreeSpace": 0, "initialise": True, **spec}
        self.spec_file = area.path / f"{self.dir.name}.json"
        self.spec_file.write_text(json.dumps(self.spec))
        super().__init__(area, [], target=self.dir / "merged", env=env,
                         args=[UNION_FS, "serve", f"--dir={self.dir}", f"--spec={self.spec_file}", "--foreground",
                               *args])

    def ask(self, op, timeout=10):
        """One question on the control socket, and the whole answer."""
        s = socket.socket(socket.AF_UNIX)
        s.settimeout(timeout * SLOW)
        fd = os.open(self.dir, os.O_PATH)
        try:
            s.connect(f"/proc/self/fd/{fd}/ctl.sock")
            s.sendall(json.dumps({"op": op}).encode() + b"\n")
            data = b""
            while not data.endswith(b"\n"):
                chunk = s.recv(65536)
                if not chunk:
                    break
                data += chunk
            return json.loads(data)
        finally:
            os.close(fd)
            s.close()


def device_branch(device, uuid, fs="ext4"):
    return {"device": device, "fsType": fs, "uuid": uuid}


@pytest.fixture
def make_server(area):
    """Makes volume servers that are stopped at the end."""
    servers = []

    def make(n=2, fs="ext4", size=64 * MIB, branches=None, start=True, **kwargs):
        if branches is None:
            branches = [device_branch(*area.loop(size, fs), fs) for _ in range(n)]
        s = Server(area, branches, **kwargs)
        servers.append(s)
        return s.start() if start else s

    yield make
    for s in servers:
        if s.process and s.process.poll() is None:
            s.stop()
