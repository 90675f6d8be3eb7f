"""A pool whose disk does not answer: only what needs it waits."""

import http.client
import os
import signal
import socket
import subprocess
import time

import grpc
import pytest

from csi_util import SLOW, UNION_FS, loops_below, mount_capability, mounts_below, servers, status_of

CODE = grpc.StatusCode


@pytest.fixture
def hung_pool(work):
    """A mount of our own union-fs as a pool, and a function that has it hang (or not)."""
    branch, point = work / "branch", work / "hung"
    branch.mkdir()
    point.mkdir()
    fs = subprocess.Popen([str(UNION_FS), "-f", str(branch), str(point)])
    end = time.monotonic() + 10 * SLOW
    while not os.path.ismount(point):
        assert time.monotonic() < end
        time.sleep(0.05)

    def hang(yes):
        fs.send_signal(signal.SIGSTOP if yes else signal.SIGCONT)

    yield point, hang
    hang(False)
    take_away_what_is_on(work, point, fs.pid)
    subprocess.run(["umount", "-l", str(point)], check=True)
    fs.wait(timeout=20 * SLOW)


def take_away_what_is_on(work, point, server):
    """Of a test that failed: a loop device whose file's filesystem is gone is in everybody's way."""
    for pid in servers(work):
        if pid != server:
            os.kill(pid, signal.SIGKILL)
    for mounted in mounts_below(work):
        if mounted != str(point):
            subprocess.run(["umount", "-l", mounted], capture_output=True)
    for loop in loops_below(work):
        subprocess.run(["losetup", "-d", loop], capture_output=True)


def readyz(port):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=3)
    c.request("GET", "/readyz")
    return c.getresponse().status


def test_a_pool_that_hangs_does_not_take_the_driver_with_it(make_driver, work, hung_pool):
    point, hang = hung_pool
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    driver = make_driver(f"--http-endpoint=127.0.0.1:{port}", pools=[work / "good", point]).start()
    assert driver.becomes_ready() and readyz(port) == 200
    volume_id, target = driver.bring_up("v", branches="1")
    (target / "f").write_text("x")
    driver.bring_up("hung", branches="2")
    time.sleep(1.1)  # until the kernel does not trust any more what it knows of the image's attributes
    hang(True)
    probes = [driver.client.future("Probe", timeout=3) for _ in range(32)]
    for probe in probes:
        probe.result()
    driver.client.NodeGetInfo(timeout=3)
    driver.client.NodeGetVolumeStats(volume_id=volume_id, volume_path=str(target), timeout=3)
    driver.client.NodeUnpublishVolume(volume_id=volume_id, target_path=str(target), timeout=3)
    assert driver.becomes_ready(False, timeout=20) and readyz(port) == 503
    code, text = status_of(driver.client.CreateVolume, name="w", timeout=3,
                           volume_capabilities=[mount_capability()])
    assert code == CODE.UNAVAILABLE and str(point) in text and "does not answer" in text
    driver.unstage(volume_id)
    driver.stage(volume_id)
    driver.unstage(volume_id)
    driver.detach(volume_id)
    driver.delete(volume_id)
    hang(False)
    assert driver.becomes_ready() and readyz(port) == 200
    driver.take_down("hung")
    assert servers(work / "state") == []


def test_a_driver_starts_while_a_pool_hangs(make_driver, work, hung_pool):
    point, hang = hung_pool
    driver = make_driver(pools=[work / "good", point]).start()
    volume_id, target = driver.bring_up("v", branches="1")
    driver.kill()
    hang(True)
    driver.start(wait=False)
    driver.wait_ready()
    driver.client.NodeGetVolumeStats(volume_id=volume_id, volume_path=str(target), timeout=3)
    assert not driver.becomes_ready(timeout=1)
    hang(False)
    assert driver.becomes_ready(timeout=15)
    driver.wait_checked(2)
    driver.take_down(volume_id)


def test_a_loop_device_whose_files_filesystem_is_gone_is_in_nobodys_way(driver, hung_pool):
    point, _ = hung_pool
    image = point / "image"
    with open(image, "wb") as f:
        f.truncate(1 << 20)
    device = subprocess.run(["losetup", "--find", "--show", str(image)], check=True, text=True,
                            capture_output=True).stdout.strip()
    try:
        fs, = [pid for pid in servers(driver.work) if str(point) in open(f"/proc/{pid}/cmdline").read()]
        os.kill(fs, signal.SIGKILL)
        end = time.monotonic() + 10 * SLOW
        while subprocess.run(["stat", str(point)], capture_output=True).returncode == 0:
            assert time.monotonic() < end
            time.sleep(0.05)
        volume_id, _ = driver.bring_up("v", branches="1")
        driver.take_down(volume_id)
    finally:
        subprocess.run(["losetup", "-d", device], check=True)
