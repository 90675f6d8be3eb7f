"""Pools: a disk that is missing, foreign, or not ours is never written to."""

import json
import os
import subprocess

import grpc
import pytest

from csi_util import MIB, leftovers, loops_below, status_of
from disk_util import mount_image

CODE = grpc.StatusCode


def test_a_new_empty_directory_becomes_a_pool_with_a_marker_that_the_state_knows(driver):
    markers = [json.loads((p / ".union-csi-pool").read_text())["uuid"] for p in driver.pools]
    known = {p["dir"]: p["uuid"] for p in json.loads((driver.state / "pools.json").read_text())["pools"]}
    assert known == dict(zip(map(str, driver.pools), markers))


def test_a_directory_with_somebodys_files_is_not_taken(make_driver, work):
    driver = make_driver()
    (driver.pools[1] / "precious").write_text("x")
    driver.start()
    assert driver.becomes_ready(False)
    code, text = status_of(driver.create, "v")
    assert code == CODE.UNAVAILABLE and "pool-b" in text and "not empty" in text
    assert os.listdir(driver.pools[1]) == ["precious"]
    assert [f for f in os.listdir(driver.pools[0]) if not f.startswith(".")] == []
    (driver.pools[1] / "precious").unlink()
    assert driver.becomes_ready()


def test_a_filesystem_with_only_lost_and_found_is_empty(make_driver, disk):
    driver = make_driver(pools=[disk("disk-a", 64 * MIB)]).start()
    assert driver.becomes_ready()


def test_a_disk_that_is_not_mounted_is_a_missing_pool(make_driver, disk):
    disks = [disk("disk-a", 100 * MIB), disk("disk-b", 100 * MIB)]
    driver = make_driver(pools=disks).start()
    driver.create("v")
    subprocess.run(["umount", str(disks[1])], check=True)
    assert driver.becomes_ready(False)
    code, text = status_of(driver.create, "w")
    assert code == CODE.UNAVAILABLE and "disk-b" in text
    assert os.listdir(disks[1]) == []  # nothing created in the empty mount point
    code, text = status_of(driver.stage, "v")
    assert code == CODE.UNAVAILABLE and str(disks[1]) in text
    assert status_of(driver.delete, "v")[0] == CODE.UNAVAILABLE  # a branch would be left
    driver.restart()
    assert driver.becomes_ready(False) and os.listdir(disks[1]) == []
    mount_image(f"{disks[1]}.img", disks[1])
    assert driver.becomes_ready()
    driver.delete("v")


def test_a_foreign_disk_in_a_pools_place_is_refused(make_driver, disk):
    disks = [disk("disk-a", 64 * MIB), disk("disk-b", 64 * MIB)]
    driver = make_driver(pools=disks).start()
    marker = disks[1] / ".union-csi-pool"
    other = json.loads(marker.read_text())
    other["uuid"] = "01234567-89ab-4cde-8f01-23456789abcd"
    original = marker.read_text()
    marker.write_text(json.dumps(other))
    assert driver.becomes_ready(False)
    code, text = status_of(driver.create, "v")
    assert code == CODE.UNAVAILABLE and other["uuid"] in text and "foreign" in text
    for damaged in ("", "{", "[]", '{"uuid": 5}', '{"uuid": "x"}', '{"uuid": "' + "a" * 36 + '"}'):
        marker.write_text(damaged)
        assert driver.becomes_ready(False)
    marker.write_text(original)
    assert driver.becomes_ready()


def test_disks_that_change_places_are_the_same_pools(make_driver, disk):
    disks = [disk("disk-a", 100 * MIB), disk("disk-b", 100 * MIB)]
    driver = make_driver(pools=disks).start()
    volume_id, target = driver.bring_up("v", branches="1")
    (target / "f").write_text("x")
    driver.unpublish("v")
    driver.unstage("v")
    driver.stop()
    for d in disks:
        subprocess.run(["umount", str(d)], check=True)
    mount_image(f"{disks[0]}.img", disks[1])
    mount_image(f"{disks[1]}.img", disks[0])
    driver.start()
    assert driver.becomes_ready()
    driver.stage("v")
    assert (driver.publish("v") / "f").read_text() == "x"
    driver.take_down("v")


def test_a_pool_that_is_left_out_is_missed_while_a_volume_needs_it(make_driver, work):
    driver = make_driver().start()
    driver.create("v")
    driver.stop()
    left_out = driver.pools.pop()
    driver.start()
    assert driver.becomes_ready(False)
    code, text = status_of(driver.create, "w")
    assert code == CODE.UNAVAILABLE
    driver.stop()
    driver.pools.append(left_out)
    driver.start()
    driver.delete("v")
    driver.stop()
    driver.pools.pop()
    driver.start()
    assert driver.becomes_ready()


def test_a_pool_that_is_given_twice_is_refused(make_driver, work):
    link = work / "again"
    driver = make_driver(pools=[work / "pool-a", link])
    link.rmdir()
    link.symlink_to(work / "pool-a")
    driver.start()
    assert driver.becomes_ready(False)
    assert status_of(driver.create, "v")[0] == CODE.UNAVAILABLE


def test_files_of_a_volume_without_state_are_listed_and_never_touched(make_driver):
    driver = make_driver().start()
    driver.create("v")
    driver.stop()
    files = {f: f.stat().st_mtime_ns for f in driver.branch_files()}
    state = driver.state / "volumes" / "v"
    (state / "state.json").rename(driver.work / "saved")
    state.rmdir()
    driver.start()
    assert [e.volume.volume_id for e in driver.client.ListVolumes().entries] == []
    code, text = status_of(driver.create, "v")  # its branches would be overwritten
    assert code == CODE.FAILED_PRECONDITION and "recover" in text
    driver.delete("v")  # no such volume
    assert {f: f.stat().st_mtime_ns for f in driver.branch_files()} == files
    driver.stop()
    assert "2 of 2 branches of volume `v`" in driver.log.read_text()
    state.mkdir()
    (driver.work / "saved").rename(state / "state.json")
    driver.start()
    driver.delete("v")


# -- union-csi recover


@pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])
def test_a_lost_state_directory_is_rebuilt_from_what_lies_beside_the_branches(driver, branches):
    volume_id, target = driver.bring_up("v", branches=branches, policy="epmfs", minFreeSpace="1Mi")
    (target / "f").write_text("precious")
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    driver.detach(volume_id)
    driver.create("blank", branches=branches)  # never staged
    before = {n: driver.state_of(n) for n in ("v", "blank")}
    driver.stop()
    subprocess.run(["rm", "-r", str(driver.state)], check=True)
    args = ["recover", f"--pool={driver.pools[0]},{driver.pools[1]}", f"--state-dir={driver.state}", "-o", "json"]
    listed = json.loads(driver.cli(*args).stdout)["volumes"]
    assert {v["id"]: (v["branches"], v["found"], v["recovered"]) for v in listed} == {
        n: (int(branches), int(branches), False) for n in before}
    assert not driver.state.exists()
    listed = json.loads(driver.cli(*args, "--write").stdout)["volumes"]
    assert all(v["recovered"] for v in listed)
    assert json.loads(driver.cli(*args).stdout)["volumes"] == []
    for name, state in before.items():
        again = driver.state_of(name)
        for key in ("capacity", "fsType", "params", "branches", "name", "thin", "phase"):
            assert again[key] == state[key], key
    driver.start()
    driver.attach("v")
    driver.stage("v")
    target = driver.publish("v")
    assert (target / "f").read_text() == "precious"
    driver.take_down("v")
    driver.bring_up("blank", branches=branches, policy="mfs")
    driver.take_down("blank")


def test_an_incomplete_volume_is_reported_and_not_recovered(make_driver):
    driver = make_driver().start()
    for name in ("no-image", "short", "alien", "whole"):
        driver.create(name)
    driver.stop()
    subprocess.run(["rm", "-r", str(driver.state)], check=True)
    (driver.pools[1] / "no-image.1.img").rename(driver.work / "no-image")
    os.truncate(driver.pools[0] / "short.0.img", 4096)
    sidecar = driver.pools[1] / "alien.1.json"
    text = sidecar.read_text()
    changed = json.loads(text)
    changed["volume"]["branches"][0]["uuid"] = "01234567-89ab-4cde-8f01-23456789abcd"
    sidecar.write_text(json.dumps(changed))
    done = driver.cli("recover", f"--pool={driver.pools[0]},{driver.pools[1]}", f"--state-dir={driver.state}",
                      "--write", check=False)
    assert done.returncode == 1
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "recovered" in lines["whole"]
    assert "no-image.1.img" in lines["no-image"] and "1 of 2" in lines["no-image"]
    assert "short.0.img" in lines["short"] and "alien.1.json" in lines["alien"]
    assert sorted(d.name for d in (driver.state / "volumes").iterdir()) == ["whole"]
    # put right, they are recovered too
    (driver.work / "no-image").rename(driver.pools[1] / "no-image.1.img")
    os.truncate(driver.pools[0] / "short.0.img", 32 * MIB)
    sidecar.write_text(text)
    driver.cli("recover", f"--pool={driver.pools[0]},{driver.pools[1]}", f"--state-dir={driver.state}", "--write")
    driver.start()
    for name in ("no-image", "short", "alien", "whole"):
        driver.delete(name)
    assert leftovers(driver) == []


# -- formatting


def stage_error(driver):
    return status_of(driver.stage, "v")


def test_a_device_that_carries_anything_is_never_formatted(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    image, = driver.branch_files("v")
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    before = image.read_bytes()
    code, text = stage_error(driver)
    assert code == CODE.FAILED_PRECONDITION and "ext4" in text
    assert image.read_bytes() == before
    with open(image, "r+b") as f:  # a partition table
        f.write(b"\0" * 64 * MIB)
        f.seek(446)
        f.write(b"\x80\x20\x21\x00\x83\xdd\x1e\x3f\x00\x08\x00\x00\x00\xf0\x01\x00".ljust(64, b"\0") + b"\x55\xaa")
    code, text = stage_error(driver)
    assert code == CODE.FAILED_PRECONDITION and "dos" in text
    with open(image, "r+b") as f:
        f.write(b"\0" * 4096)
    driver.stage("v")
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


@pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])
def test_a_branch_whose_file_is_missing_is_named_and_used_again_when_it_is_back(driver, branches):
    driver.create("v", branches=branches)
    driver.attach("v")
    image = driver.branch_files("v")[-1]
    image.rename(driver.work / "away")
    code, text = stage_error(driver)
    assert code == CODE.FAILED_PRECONDITION and image.name in text and "missing" in text, text
    assert driver.state_of("v")["stage"]["phase"] == "none" and loops_below(driver.work) == []
    (driver.work / "away").rename(image)
    driver.stage("v")
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def test_a_formatted_branch_that_is_blank_or_another_is_refused_with_both_named(driver):
    volume_id, target = driver.bring_up("v", branches="1")
    (target / "f").write_text("x")
    driver.unpublish("v")
    driver.unstage("v")
    image, = driver.branch_files("v")
    saved = image.read_bytes()
    uuid = driver.state_of("v")["branches"][0]["uuid"]
    with open(image, "r+b") as f:
        f.write(b"\0" * MIB)
    code, text = stage_error(driver)
    assert code == CODE.FAILED_PRECONDITION and "nothing" in text and uuid in text
    assert image.read_bytes()[:MIB] == b"\0" * MIB
    other = "01234567-89ab-4cde-8f01-23456789abcd"
    subprocess.run(["mkfs.ext4", "-q", "-F", "-U", other, str(image)], check=True)
    code, text = stage_error(driver)
    assert code == CODE.FAILED_PRECONDITION and other in text and uuid in text
    image.write_bytes(saved)
    driver.stage("v")
    assert (driver.publish("v") / "f").read_text() == "x"
    driver.take_down("v")


def test_an_interrupted_formatting_is_redone(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    driver.stop()
    state = driver.state / "volumes" / "v" / "state.json"
    image, = driver.branch_files("v")

    def pretend(formatted):
        s = json.loads(state.read_text())
        s["branches"][0]["format"] = "formatting"
        state.write_text(json.dumps(s))
        if formatted:
            subprocess.run(["mkfs.ext4", "-q", "-F", "-U", s["branches"][0]["uuid"], str(image)], check=True)

    for formatted in (False, True):
        pretend(formatted)
        driver.start()
        driver.stage("v")
        assert driver.state_of("v")["branches"][0]["format"] == "formatted"
        driver.unstage("v")
        driver.stop()
        with open(image, "r+b") as f:
            f.write(b"\0" * MIB)
    pretend(False)
    subprocess.run(["mkfs.xfs", "-q", "-f", "-d", f"file,name={image},size=300m"], capture_output=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)  # a UUID that is not ours
    driver.start()
    assert stage_error(driver)[0] == CODE.FAILED_PRECONDITION
    driver.detach("v")
    driver.delete("v")


def test_an_image_that_was_replaced_or_cut_is_refused(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    image, = driver.branch_files("v")
    os.truncate(image, 4096)
    code, text = stage_error(driver)
    assert code == CODE.FAILED_PRECONDITION and "v.0.img" in text
    image.rename(driver.work / "aside")
    image.symlink_to(driver.work / "aside")
    assert stage_error(driver)[0] == CODE.INTERNAL
    image.unlink()
    (driver.work / "aside").rename(image)
    driver.detach("v")
    driver.delete("v")
