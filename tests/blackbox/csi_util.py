"""A real gRPC client for the driver, and a driver to talk to.

Nothing here checks anything: tests do.
"""

import contextlib
import json
import os
import pathlib
import re
import signal
import subprocess
import time

import grpc

import csi_pb2 as csi  # generated into build/gen/python
import pluginregistration_pb2 as registration  # noqa: F401  (for the tests)

TOP = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("BIN", TOP / "build" / "bin")).resolve()
UNION_CSI = BIN / "union-csi"
UNION_FS = BIN / "union-fs"

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
# Sanitizers slow everything down.
SLOW = 5 if "address" in str(BIN) or "thread" in str(BIN) else 1

MODE = csi.VolumeCapability.AccessMode


class Client:
    """Calls by name: client.CreateVolume(name="v") or client.CreateVolume(request)."""

    def __init__(self, path, timeout=60 * SLOW):
        self.timeout = timeout
        self.channel = grpc.insecure_channel(f"unix://{path}")
        self.methods = {}
        for service in csi.DESCRIPTOR.services_by_name.values():
            for method in service.methods:
                self.methods[method.name] = (
                    self.channel.unary_unary(
                        f"/{service.full_name}/{method.name}",
                        request_serializer=lambda m: m.SerializeToString(),
                        response_deserializer=getattr(csi, method.output_type.name).FromString,
                    ),
                    getattr(csi, method.input_type.name),
                )

    def __getattr__(self, name):
        if name not in self.methods:
            raise AttributeError(name)
        call, request_type = self.methods[name]

        def invoke(request=None, timeout=None, **fields):
            return call(request or request_type(**fields), timeout=timeout or self.timeout)

        return invoke

    def future(self, name, timeout=None, **fields):
        call, request_type = self.methods[name]
        return call.future(request_type(**fields), timeout=timeout or self.timeout)

    def close(self):
        self.channel.close()


def mount_capability(mode=MODE.SINGLE_NODE_WRITER, fs_type="", flags=(), group=""):
    return csi.VolumeCapability(
        mount=csi.VolumeCapability.MountVolume(
            fs_type=fs_type, mount_flags=list(flags), volume_mount_group=group),
        access_mode=MODE(mode=mode))


def block_capability(mode=MODE.SINGLE_NODE_WRITER):
    return csi.VolumeCapability(block=csi.VolumeCapability.BlockVolume(), access_mode=MODE(mode=mode))


def status_of(call, *args, **kwargs):
    """(code, message) of a call that must fail."""
    try:
        call(*args, **kwargs)
    except grpc.RpcError as e:
        return e.code(), e.details()
    raise AssertionError("the call succeeded")


class Driver:
    """A driver process with its directories, and what a CO does with it."""

    def __init__(self, work, pools=None, args=(), env=None, binary=UNION_CSI):
        self.work = pathlib.Path(work)
        self.pools = [pathlib.Path(p) for p in pools] if pools else [self.work / "pool-a", self.work / "pool-b"]
        self.kubelet = self.work / "kubelet"
        self.state = self.work / "state"
        self.run = self.work / "run"
        self.socket = self.run / "csi.sock"
        self.log = self.work / "driver.log"
        self.args, self.env, self.binary = list(args), dict(env or {}), binary
        self.process, self.client = None, None
        for d in [self.kubelet, self.run, *self.pools]:
            d.mkdir(parents=True, exist_ok=True)

    @property
    def endpoint(self):
        return f"unix://{self.socket}"

    def command(self, *extra):
        return [str(self.binary), f"--pool={','.join(map(str, self.pools))}", f"--state-dir={self.state}",
                f"--kubelet-dir={self.kubelet}", f"--endpoint={self.endpoint}", "--node-id=test-node", "-v",
                f"--union-fs={UNION_FS}", *self.args, *extra]

    CHECKED = "what was left from before is checked"

    def start(self, *extra, wait=True):
        """With @wait, until it serves and has repaired what an earlier one left (which keeps volumes busy)."""
        assert self.process is None
        checks = self.log.read_text().count(self.CHECKED) if self.log.exists() else 0
        with open(self.log, "a") as log:
            self.process = subprocess.Popen(self.command(*extra), stderr=log, stdout=log,
                                            env={**os.environ, **self.env})
        self.client = Client(self.socket)
        if wait:
            self.wait_ready()
            self.wait_checked(checks + 1)
        return self

    def wait_checked(self, times):
        """Until it has repaired what an earlier one left, in its @times-th run."""
        end = time.monotonic() + 20 * SLOW
        while self.log.read_text().count(self.CHECKED) < times and time.monotonic() < end:
            time.sleep(0.005)

    def wait_ready(self):
        end = time.monotonic() + 20 * SLOW
        while True:
            try:
                self.client.Probe(timeout=5)
                return
            except grpc.RpcError:
                if self.process.poll() is not None:
                    raise AssertionError("the driver ended:\n" + self.log.read_text()[-4000:])
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)
                # grpc backs off after a failed connection: start afresh
                self.client.close()
                self.client = Client(self.socket)

    def becomes_ready(self, ready=True, timeout=5 * SLOW):
        """Whether Probe says so soon: it tells what the last look found, and asks for another one."""
        end = time.monotonic() + timeout
        while self.client.Probe().ready.value is not ready:
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def _gone(self):
        if self.client:
            self.client.close()
        self.process = self.client = None

    def stop(self, expect=0):
        if self.process:
            self.client.close()
            self.process.send_signal(signal.SIGTERM)
            status = self.process.wait(timeout=30 * SLOW)
            self._gone()
            assert status == expect, f"exit status {status}\n{self.log.read_text()[-6000:]}"

    def kill(self):
        self.process.kill()
        self.process.wait()
        self._gone()

    def restart(self):
        self.kill()
        return self.start()

    # -- what the state directory says

    def state_of(self, volume_id):
        return json.loads((self.state / "volumes" / volume_id / "state.json").read_text())

    def merged(self, volume_id):
        return self.state / "volumes" / volume_id / "merged"

    def branch_files(self, volume_id=None):
        names = [f for p in self.pools for f in p.iterdir() if f.suffix == ".img"]
        return sorted(f for f in names if volume_id is None or f.name.startswith(volume_id + "."))

    # -- what a CO does

    def create(self, name, size=64 * MIB, capability=None, **parameters):
        return self.client.CreateVolume(
            name=name, capacity_range=csi.CapacityRange(required_bytes=size),
            volume_capabilities=[capability or mount_capability()], parameters=parameters).volume

    def staging(self, volume_id):
        return self.kubelet / "staging" / volume_id

    def target(self, volume_id, name="t"):
        return self.kubelet / "targets" / volume_id / name

    def attach(self, volume_id, capability=None, readonly=False):
        self.client.ControllerPublishVolume(volume_id=volume_id, node_id="test-node", readonly=readonly,
                                            volume_capability=capability or mount_capability())

    def stage(self, volume_id, capability=None):
        path = self.staging(volume_id)
        with contextlib.suppress(FileExistsError):  # without a look at it: its server may be dead
            os.makedirs(path)
        self.client.NodeStageVolume(volume_id=volume_id, staging_target_path=str(path),
                                    volume_capability=capability or mount_capability())
        return path

    def publish(self, volume_id, name="t", capability=None, readonly=False):
        target = self.target(volume_id, name)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.client.NodePublishVolume(
            volume_id=volume_id, staging_target_path=str(self.staging(volume_id)), target_path=str(target),
            volume_capability=capability or mount_capability(), readonly=readonly)
        return target

    def unpublish(self, volume_id, name="t"):
        self.client.NodeUnpublishVolume(volume_id=volume_id, target_path=str(self.target(volume_id, name)))

    def unstage(self, volume_id):
        self.client.NodeUnstageVolume(volume_id=volume_id, staging_target_path=str(self.staging(volume_id)))

    def detach(self, volume_id):
        self.client.ControllerUnpublishVolume(volume_id=volume_id, node_id="test-node")

    def delete(self, volume_id):
        self.client.DeleteVolume(volume_id=volume_id)

    def bring_up(self, name, size=64 * MIB, capability=None, **parameters):
        """From nothing to a published volume; returns its id and its target."""
        volume_id = self.create(name, size, capability, **parameters).volume_id
        self.attach(volume_id, capability)
        self.stage(volume_id, capability)
        return volume_id, self.publish(volume_id, capability=capability)

    def take_down(self, volume_id, names=("t",)):
        for name in names:
            self.unpublish(volume_id, name)
        self.unstage(volume_id)
        self.detach(volume_id)
        self.delete(volume_id)

    def cli(self, *args, check=True, **kwargs):
        env = {**os.environ, "CSI_ENDPOINT": self.endpoint}
        done = subprocess.run([str(self.binary), *map(str, args)], env=env, text=True, capture_output=True,
                              timeout=120 * SLOW, **kwargs)
        if check:
            assert done.returncode == 0, done.stdout + done.stderr
        return done


# -- what is left on the machine


def mounts_below(path):
    """Mount points below @path, deepest last mounted first."""
    found = []
    for line in open("/proc/self/mountinfo"):
        point = line.split()[4].encode().decode("unicode_escape")
        if point == str(path) or point.startswith(f"{path}/"):
            found.append(point)
    return found[::-1]


def loops_below(path):
    out = subprocess.run(["losetup", "-l", "-n", "-O", "NAME,BACK-FILE"], text=True, capture_output=True).stdout
    return [line.split()[0] for line in out.splitlines() if f" {path}/" in " " + line.split(None, 1)[-1]]


def processes_with(path):
    found = []
    for p in pathlib.Path("/proc").iterdir():
        if p.name.isdigit() and int(p.name) != os.getpid():
            try:
                cmdline = (p / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if f"{path}/" in cmdline and re.match(r"\S*union-(csi|fs)", cmdline):
                found.append((int(p.name), cmdline))
    return found


def servers(path):
    """Volume servers of directories below @path."""
    return sorted(pid for pid, c in processes_with(path) if c.split()[0].endswith("union-fs"))


def leftovers(driver):
    """What is left of volumes: must be empty when all are deleted."""
    left = [f"mount {m}" for m in mounts_below(driver.work) if m not in map(str, driver.pools)]
    left += [f"loop {d}" for d in loops_below(driver.work) if not any(
        str(p) + ".img" in subprocess.run(["losetup", "-n", "-O", "BACK-FILE", d], text=True,
                                          capture_output=True).stdout for p in driver.pools)]
    left += [f"volume server {pid}" for pid in servers(driver.work)]
    for p in driver.pools:
        if p.is_dir():
            left += [f"file {f}" for f in p.iterdir() if f.name not in (".union-csi-pool", "lost+found")]
    volumes = driver.state / "volumes"
    if volumes.is_dir():
        left += [f"state {f}" for f in volumes.iterdir()]
    return left


def clean_up(work):
    """Takes everything below @work away, whatever state a failed test left it in."""
    for pid, _ in processes_with(work):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    for point in mounts_below(work):
        subprocess.run(["umount", "-l", point], capture_output=True)
    time.sleep(0.05)
    for loop in loops_below(work):
        for _ in range(50):
            if subprocess.run(["losetup", "-d", loop], capture_output=True).returncode == 0 and \
                    loop not in loops_below(work):
                break
            time.sleep(0.1)
