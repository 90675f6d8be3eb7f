"""Paths of a request never lead outside the driver's roots."""

import os
import shutil
import subprocess

import grpc
import pytest

from csi_util import mount_capability, mounts_below, status_of

CODE = grpc.StatusCode


@pytest.fixture
def staged(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    driver.stage("v")
    yield driver
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def publish(driver, target):
    return status_of(driver.client.NodePublishVolume, volume_id="v", staging_target_path=str(driver.staging("v")),
                     target_path=str(target), volume_capability=mount_capability())


@pytest.mark.parametrize("path", [
    "/", "/etc", "/tmp/x", "{kubelet}", "{kubelet}/", "{kubelet}/.", "{kubelet}/a/../b", "{kubelet}/../outside",
    "{kubelet}/..", "relative/path", "{kubelet}-evil/x", "{work}/pool-a/x", "{work}/state/volumes/v/merged", "x",
    "{kubelet}/" + "a/" * 2200])
def test_a_path_outside_the_roots_is_refused_everywhere(staged, path):
    path = path.format(kubelet=staged.kubelet, work=staged.work)
    os.makedirs(f"{staged.kubelet}-evil", exist_ok=True)
    before = mounts_below(staged.work)
    n = staged.client
    for code, text in (
            publish(staged, path),
            status_of(n.NodeStageVolume, volume_id="v", staging_target_path=path, volume_capability=mount_capability()),
            status_of(n.NodeUnpublishVolume, volume_id="v", target_path=path),
            status_of(n.NodeUnstageVolume, volume_id="v", staging_target_path=path)):
        assert code == CODE.INVALID_ARGUMENT and "target_path" in text, text
    assert mounts_below(staged.work) == before
    assert not os.listdir(f"{staged.kubelet}-evil") and not os.path.exists(staged.work / "outside")


def test_doubled_and_trailing_slashes_mean_nothing(staged):
    target = f"{staged.kubelet}//pods///v//"
    os.makedirs(os.path.dirname(target.rstrip("/")))
    staged.client.NodePublishVolume(volume_id="v", staging_target_path=str(staged.staging("v")), target_path=target,
                                    volume_capability=mount_capability())
    assert os.path.ismount(staged.kubelet / "pods" / "v")
    staged.client.NodeUnpublishVolume(volume_id="v", target_path=target)


def test_a_symlink_on_the_way_is_never_followed(staged):
    outside = staged.work / "outside"
    outside.mkdir()
    (staged.kubelet / "link").symlink_to(outside)
    (staged.kubelet / "inside").mkdir()
    (staged.kubelet / "loop").symlink_to("inside")
    for target in (staged.kubelet / "link" / "t", staged.kubelet / "loop" / "t"):
        code, text = publish(staged, target)
        assert code == CODE.INVALID_ARGUMENT, text
    (staged.kubelet / "inside" / "t").symlink_to(outside)
    code, text = publish(staged, staged.kubelet / "inside" / "t")
    assert code in (CODE.FAILED_PRECONDITION, CODE.INVALID_ARGUMENT, CODE.INTERNAL), text
    for target in (staged.kubelet / "link" / "t", staged.kubelet / "inside" / "t"):
        code, _ = status_of(staged.client.NodeUnpublishVolume, volume_id="v", target_path=str(target))
        assert code != CODE.OK
    assert os.listdir(outside) == [] and (staged.kubelet / "inside" / "t").is_symlink()
    assert mounts_below(outside) == []


def test_a_kubelet_directory_that_is_a_symlink_is_known_by_both_names(make_driver, work):
    real, other = work / "real-kubelet", work / "other"
    driver = make_driver()
    driver.kubelet.rename(real)
    driver.kubelet.symlink_to(real)
    other.mkdir()
    driver.start()
    volume_id, target = driver.bring_up("v")
    assert os.path.ismount(real / "targets" / "v" / "t")
    driver.kubelet.unlink()
    driver.kubelet.symlink_to(other)  # what it points to later does not matter
    second = real / "targets" / "v" / "second"
    driver.client.NodePublishVolume(volume_id="v", staging_target_path=str(driver.staging("v")),
                                    target_path=str(second), volume_capability=mount_capability())
    assert os.path.ismount(second) and list(other.iterdir()) == []
    driver.client.NodeUnpublishVolume(volume_id="v", target_path=str(second))
    assert not second.exists()
    (real / "link").symlink_to("targets")  # below the root no symlink is followed
    for root in (driver.kubelet, real):
        code, text = publish(driver, root / "link" / "t2")
        assert code == CODE.INVALID_ARGUMENT and "leads through" in text
    driver.take_down(volume_id)
    assert not target.exists() and mounts_below(real) == []


def test_a_kubelet_directory_that_is_made_after_the_start_is_used(make_driver):
    driver = make_driver()
    driver.kubelet.rmdir()
    driver.start()
    driver.create("v", branches="1")
    driver.attach("v")
    code, text = status_of(driver.client.NodeStageVolume, volume_id="v", staging_target_path=str(driver.staging("v")),
                           volume_capability=mount_capability())
    assert code == CODE.FAILED_PRECONDITION and "missing" in text
    driver.stage("v")
    driver.publish("v")
    driver.take_down("v")
    shutil.rmtree(driver.kubelet)  # as a node that is set up anew does it
    driver.bring_up("v")
    driver.take_down("v")


@pytest.mark.parametrize("path", ["{kubelet}/" + "b" * 256, "{kubelet}/" + "b" * 256 + "/c"])
def test_a_name_that_no_file_can_have_is_refused(staged, path):
    path = path.format(kubelet=staged.kubelet)
    n = staged.client
    for code, text in (
            publish(staged, path),
            status_of(n.NodeStageVolume, volume_id="v", staging_target_path=path, volume_capability=mount_capability()),
            status_of(n.NodeUnpublishVolume, volume_id="v", target_path=path),
            status_of(n.NodeUnpublishVolume, volume_id="absent", target_path=path),
            status_of(n.NodeUnstageVolume, volume_id="v", staging_target_path=path),
            status_of(n.NodeUnstageVolume, volume_id="absent", staging_target_path=path)):
        assert code == CODE.INVALID_ARGUMENT and "target_path" in text and "255" in text, text


def test_a_file_in_the_targets_place_is_refused(staged):
    target = staged.kubelet / "file"
    target.write_text("x")
    assert publish(staged, target)[0] == CODE.FAILED_PRECONDITION
    assert publish(staged, target / "below")[0] == CODE.INVALID_ARGUMENT
    assert publish(staged, staged.kubelet / "no" / "such" / "parent")[0] == CODE.FAILED_PRECONDITION
    assert target.read_text() == "x"


def test_further_roots_can_be_given(make_driver, work):
    (work / "srv").mkdir()
    driver = make_driver(f"--mount-root={work}/srv").start()
    driver.create("v", branches="1")
    driver.cli("volume", "mount", "v", work / "srv" / "data")
    assert os.path.ismount(work / "srv" / "data")
    driver.cli("volume", "umount", "v", work / "srv" / "data")
    assert not (work / "srv" / "data").exists()
    driver.delete("v")
    code = subprocess.run(driver.command(f"--mount-root={work}/nowhere"), capture_output=True, timeout=30)
    assert code.returncode != 0 and b"nowhere" in code.stderr
