# SPDX-License-Identifier: Apache-2.0
"""Volume servers that hang, die, or serve what the state does not know of; and steps that take their time."""

import errno
import os
import signal
import subprocess
import time

import grpc
import pytest

from csi_util import MIB, MODE, SLOW, leftovers, mount_capability, servers, status_of

Code = grpc.StatusCode


@pytest.fixture
def up(driver):
    """A published union: the driver, its volume server's process, and the target."""
    volume_id, target = driver.bring_up("v")
    [pid] = servers(driver.work)
    yield driver, pid, target
    try:
        os.kill(pid, signal.SIGCONT)
    except ProcessLookupError:
        pass


def await_end(pid):
    """It is nobody's child here: init may take a moment."""
    end = time.monotonic() + 10 * SLOW
    while os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < end:
        time.sleep(0.01)


def test_target_of_a_server_that_died_is_published_anew(up):
    driver, pid, target = up
    (target / "f").write_text("data")
    os.kill(pid, signal.SIGKILL)
    await_end(pid)
    driver.stage("v")
    assert driver.publish("v") == target
    assert (target / "f").read_text() == "data"
    assert servers(driver.work) not in ([], [pid])
    driver.take_down("v")


@pytest.mark.vm
def test_server_that_died_is_replaced_while_a_pod_still_has_its_files_open(up):
    """The kernel keeps the branches in use for as long as the dead union is mounted with open files."""
    driver, pid, target = up
    with open(target / "f", "w+b", buffering=0) as f:
        f.write(b"first")
        os.kill(pid, signal.SIGKILL)
        await_end(pid)
        driver.stage("v")
        driver.publish("v")
        assert (target / "f").read_bytes() == b"first"
        (target / "g").write_bytes(b"new")
    assert driver.unpublish("v") is None
    driver.publish("v")
    assert (target / "g").read_bytes() == b"new"
    driver.take_down("v")
    assert leftovers(driver) == []


def test_what_a_pod_writes_past_a_new_server_is_seen(up):
    """It has a file of the old union open, and the kernel writes to the branch without asking anybody."""
    driver, pid, target = up
    with open(target / "f", "w+b", buffering=0) as f:
        f.write(b"first")
        os.kill(pid, signal.SIGKILL)
        await_end(pid)
        other = driver.publish("v", "t2")
        assert os.stat(other / "f").st_size == 5
        os.pwrite(f.fileno(), b"x" * 7000, 5)
        assert os.stat(other / "f").st_size == 7005
        assert len((other / "f").read_bytes()) == 7005
    driver.unpublish("v", "t2")
    driver.take_down("v")


def test_image_that_was_replaced_is_not_attached_beside_the_old_one(up):
    driver, pid, target = up
    image = next(p for p in driver.branch_files("v") if p.suffix == ".img" and ".0." in p.name)
    subprocess.run(["cp", "--sparse=always", image, f"{image}.new"], check=True)
    with open(target / "f", "w+b", buffering=0) as f:
        f.write(b"data")
        os.kill(pid, signal.SIGKILL)
        await_end(pid)
        os.rename(f"{image}.new", image)
        for call in (driver.stage, driver.publish):
            code, text = status_of(call, "v")
            assert code == Code.FAILED_PRECONDITION and "another file behind it" in text
    driver.take_down("v")
    assert leftovers(driver) == []


def test_stage_mends_a_volume_that_nobody_uses_and_somebody_unmounted(driver):
    volume_id = driver.create("v").volume_id
    driver.attach(volume_id)
    driver.stage(volume_id)
    subprocess.run(["umount", "-l", driver.merged("v")], check=True)
    driver.stage(volume_id)
    (driver.publish(volume_id) / "f").write_text("data")
    subprocess.run(["umount", "-l", driver.merged("v")], check=True)
    code, text = status_of(driver.publish, volume_id, "t2")
    assert code == Code.FAILED_PRECONDITION and "unpublish and unstage it" in text
    driver.take_down(volume_id)


def test_publish_needs_no_staging_path(up):
    driver, _, target = up
    subprocess.run(["umount", driver.staging("v")], check=True)
    (driver.staging("v") / "somebody's").mkdir()
    assert driver.publish("v") == target
    os.rmdir(driver.staging("v") / "somebody's")
    driver.take_down("v")


def test_server_that_died_is_replaced_by_a_publish(up):
    """For a pod that comes while others use the volume kubelet only publishes."""
    driver, pid, target = up
    (target / "f").write_text("data")
    os.kill(pid, signal.SIGKILL)
    await_end(pid)
    second = driver.publish("v", "t2")
    for path in (second, driver.publish("v")):
        assert (path / "f").read_text() == "data"
    assert len(servers(driver.work)) == 1
    driver.unpublish("v", "t2")
    driver.take_down("v")


def test_hung_server_does_not_keep_a_volume(up):
    driver, pid, _ = up
    os.kill(pid, signal.SIGSTOP)
    driver.unpublish("v")
    driver.unstage("v")
    await_end(pid)
    assert servers(driver.work) == []
    driver.detach("v")
    driver.delete("v")
    assert leftovers(driver) == []


def test_hung_server_that_is_in_use_is_not_killed(up):
    driver, pid, target = up
    other = driver.work / "other"
    other.mkdir()
    subprocess.run(["mount", "--bind", target, other], check=True)
    (other / "f").write_text("data")
    os.kill(pid, signal.SIGSTOP)
    driver.unpublish("v")
    code, text = status_of(driver.client.NodeUnstageVolume, volume_id="v", staging_target_path=str(driver.staging("v")))
    assert code == Code.FAILED_PRECONDITION and f"mounted at `{other}`" in text
    os.kill(pid, signal.SIGCONT)
    assert (other / "f").read_text() == "data"
    subprocess.run(["umount", other], check=True)
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def test_question_to_a_hung_volume_does_not_keep_its_target(up):
    driver, pid, target = up
    os.kill(pid, signal.SIGSTOP)
    code, _ = status_of(driver.client.NodeGetVolumeStats, volume_id="v", volume_path=str(target))
    assert code == Code.DEADLINE_EXCEEDED
    driver.unpublish("v")
    os.kill(pid, signal.SIGCONT)
    assert not target.exists()
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def test_stage_again_takes_nothing_from_a_server_that_is_slow(up):
    driver, pid, target = up
    (target / "f").write_text("data")
    os.kill(pid, signal.SIGSTOP)
    code, text = status_of(driver.client.NodeStageVolume, volume_id="v", staging_target_path=str(driver.staging("v")),
                           volume_capability=mount_capability())
    os.kill(pid, signal.SIGCONT)
    assert code == Code.ABORTED and "does not work" in text
    for path in (driver.staging("v"), target):
        assert (path / "f").read_text() == "data"
    driver.stage("v")
    assert servers(driver.work) == [pid]
    driver.take_down("v")


def test_nothing_but_the_volume_is_ever_published(driver):
    volume_id = driver.create("v").volume_id
    driver.attach(volume_id)
    umount = subprocess.Popen(["sh", "-c", f"while :; do umount -l {driver.merged('v')} 2>/dev/null; done"])
    try:
        for _ in range(25):
            for call in (driver.stage, driver.publish):
                try:
                    call(volume_id)
                except grpc.RpcError as e:
                    assert e.code() in (Code.FAILED_PRECONDITION, Code.ABORTED), e.details()
            for line in open("/proc/self/mountinfo"):
                if f" {driver.kubelet}/" in line:
                    assert " - fuse.union-fs v " in line, line
            driver.unpublish(volume_id)
    finally:
        umount.kill()
        umount.wait()
    end = time.monotonic() + 60 * SLOW
    while True:
        try:
            driver.take_down(volume_id)
            break
        except grpc.RpcError:
            assert time.monotonic() < end
            time.sleep(0.1)


def test_lost_state_takes_nothing_from_a_volume_in_use(up):
    driver, pid, target = up
    state = driver.state / "volumes" / "v" / "state.json"
    kept = state.read_bytes()
    fd = os.open(target / "f", os.O_RDWR | os.O_CREAT)
    driver.kill()
    state.unlink()
    driver.start()
    assert "volume `v` could not be repaired" in driver.log.read_text()
    code, _ = status_of(driver.client.CreateVolume, name="v", volume_capabilities=[mount_capability()])
    assert code != Code.OK
    os.pwrite(fd, b"still", 0)
    assert (driver.state / "volumes" / "v" / "ctl.sock").exists() and servers(driver.work) == [pid]
    driver.kill()
    state.write_bytes(kept)
    driver.start()
    assert os.pread(fd, 10, 0) == b"still"
    os.close(fd)
    driver.take_down("v")


def test_recovered_state_takes_nothing_from_a_volume_in_use(up):
    driver, pid, target = up
    state = driver.state / "volumes" / "v" / "state.json"
    fd = os.open(target / "f", os.O_RDWR | os.O_CREAT)
    driver.kill()
    kept = state.read_bytes()
    state.unlink()
    subprocess.run([str(driver.binary), "recover", f"--pool={','.join(map(str, driver.pools))}",
                    f"--state-dir={driver.state}", "--write"], check=True)
    driver.start()
    os.pwrite(fd, b"still", 0)
    assert servers(driver.work) == [pid]
    os.close(fd)
    # What was published is not known any more: the paths are.
    driver.unpublish("v")
    driver.unstage("v")
    assert not os.path.ismount(driver.staging("v")) and not os.path.ismount(target)
    assert kept != state.read_bytes()
    driver.restart()
    driver.delete("v")


def test_read_only_stage_is_read_only_at_every_target(driver):
    volume_id = driver.create("v", branches="1").volume_id
    driver.attach(volume_id)
    driver.stage(volume_id, mount_capability(flags=["ro", "nosuid"], group="4242"))
    target = driver.publish(volume_id, capability=mount_capability(flags=["rw", "suid"], group="4242"))
    with pytest.raises(OSError) as e:
        (target / "f").write_text("x")
    assert e.value.errno == errno.EROFS
    assert os.statvfs(target).f_flag & os.ST_NOSUID
    driver.take_down(volume_id)


def test_read_only_publish_changes_no_group(driver):
    volume_id, target = driver.bring_up("v")
    capability = mount_capability(group="4242")
    driver.publish(volume_id, "reader", capability, readonly=True)
    assert os.stat(target).st_gid == 0
    reader = mount_capability(MODE.SINGLE_NODE_READER_ONLY, group="4242")
    driver.publish(volume_id, "other", reader)
    assert os.stat(target).st_gid == 0
    driver.take_down(volume_id, ("t", "reader", "other"))


def test_format_that_takes_its_time_is_waited_for(make_driver, work):
    """A program before mkfs in the path of this driver alone, which has a mount namespace of its own."""
    programs = work / "programs"
    programs.mkdir()
    (programs / "mkfs.ext4").write_text("#!/bin/sh\necho run >>" + str(work / "runs") + '\nsleep 5\nexec /usr/sbin/mkfs.ext4 "$@"\n')
    (programs / "mkfs.ext4").chmod(0o755)
    driver = make_driver("--hang-timeout=2")
    command = driver.command
    driver.command = lambda *extra: ["unshare", "--mount", "--propagation", "private", "sh", "-c",
                                     f'mount --bind {programs} /usr/local/sbin && exec "$@"', "sh", *command(*extra)]
    driver.start()
    volume_id = driver.create("v", branches="1").volume_id
    driver.attach(volume_id)
    driver.stage(volume_id)
    assert (work / "runs").read_text() == "run\n"
    driver.unstage(volume_id)
    driver.detach(volume_id)
    driver.delete(volume_id)


def test_path_is_the_same_however_it_is_spelled(driver):
    volume_id = driver.create("v").volume_id
    driver.attach(volume_id)
    single = mount_capability(MODE.SINGLE_NODE_SINGLE_WRITER)
    driver.staging(volume_id).mkdir(parents=True)
    driver.target(volume_id).parent.mkdir(parents=True)
    staging, target = f"{driver.kubelet}//staging/v/", f"{driver.kubelet}/targets//v/t/"
    driver.client.NodeStageVolume(volume_id=volume_id, staging_target_path=staging, volume_capability=single)
    for path in (target, str(driver.target(volume_id))):
        driver.client.NodePublishVolume(volume_id=volume_id, staging_target_path=str(driver.staging(volume_id)),
                                        target_path=path, volume_capability=single)
        driver.client.NodeGetVolumeStats(volume_id=volume_id, volume_path=target)
    driver.unpublish(volume_id)
    driver.client.NodePublishVolume(volume_id=volume_id, staging_target_path=staging,
                                    target_path=str(driver.target(volume_id, "other")), volume_capability=single)
    driver.take_down(volume_id, ("other",))
