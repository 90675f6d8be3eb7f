"""union-csi recover: what it writes, and what it must never make of a damaged volume."""

import json
import os
import subprocess
import time

import grpc
import pytest

from csi_util import MIB, SLOW, Driver, status_of
from disk_util import mount_image

CODE = grpc.StatusCode


def recover(driver, *args, pools=None):
    pools = ",".join(map(str, pools or driver.pools))
    return driver.cli("recover", f"--pool={pools}", f"--state-dir={driver.state}", *args, check=False)


def lose_state(driver):
    driver.stop()
    subprocess.run(["rm", "-r", str(driver.state)], check=True)


def put_away(driver, volume_id):
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    driver.detach(volume_id)


def wipe(image):
    with open(image, "r+b") as f:
        f.write(b"\0" * MIB)


# -- a branch that appears blank


@pytest.mark.parametrize("branches", [1, 2])
def test_a_formatted_branch_that_appears_blank_is_never_recovered_to_be_formatted(driver, branches):
    volume_id, target = driver.bring_up("v", branches=str(branches))
    (target / "f").write_text("precious")
    put_away(driver, volume_id)
    lose_state(driver)
    image = driver.branch_files("v")[-1]
    head = image.read_bytes()[:MIB]
    wipe(image)
    done = recover(driver, "--write")
    assert done.returncode == 1 and image.name in done.stdout and "nothing" in done.stdout
    assert not (driver.state / "volumes" / "v").exists()
    with open(image, "r+b") as f:
        f.write(head)
    assert recover(driver, "--write").returncode == 0
    driver.start()
    driver.attach("v")
    driver.stage("v")
    assert (driver.publish("v") / "f").read_text() == "precious"
    driver.take_down("v")


def test_a_branch_is_described_as_formatted_once_it_is(driver):
    driver.create("v")

    def formats():
        return [json.loads(f.with_suffix(".json").read_text())["volume"]["branches"][i]["format"]
                for i, f in enumerate(driver.branch_files("v"))]

    assert formats() == ["never", "never"]
    driver.attach("v")
    driver.stage("v")
    assert formats() == ["formatted", "formatted"]
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


# -- a look changes nothing


def tree(*roots):
    return {p: p.read_bytes() if p.is_file() else None for root in roots for p in [root, *root.rglob("*")]}


def test_a_look_neither_makes_pools_nor_a_state_directory(driver, work):
    driver.create("v")
    lose_state(driver)
    empty = work / "mount-point"
    empty.mkdir()
    before = tree(work)
    done = recover(driver)
    assert done.returncode == 0 and "can be recovered" in done.stdout
    done = recover(driver, pools=[*driver.pools, empty])
    assert done.returncode == 1 and str(empty) in done.stderr
    assert tree(work) == before
    recover(driver, "--write")
    driver.start()
    driver.delete("v")


def test_a_recovery_that_fails_leaves_nothing(driver, work):
    driver.create("v")
    lose_state(driver)
    empty = work / "mount-point"
    empty.mkdir()
    before = tree(work)
    assert recover(driver, "--write", pools=[*driver.pools, empty]).returncode == 1
    assert recover(driver, "--write", pools=[*driver.pools, work / "nowhere"]).returncode == 1
    driver.branch_files("v")[0].rename(work / "aside")
    assert recover(driver, "--write").returncode == 1
    (work / "aside").rename(driver.pools[0] / "v.0.img")
    assert tree(work) == before
    recover(driver, "--write")
    assert {p["dir"] for p in json.loads((driver.state / "pools.json").read_text())["pools"]} == \
        set(map(str, driver.pools))
    driver.start()
    driver.delete("v")


# -- a volume that is in use although its new state does not know


@pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])
def test_a_volume_that_pods_use_is_not_deleted_after_its_state_was_lost(driver, work, branches):
    volume_id, target = driver.bring_up("v", branches=branches)
    other = Driver(work / "other").start()
    other.bring_up("v", branches=branches)  # of the same id, but not ours
    (target / "f").write_text("precious")
    driver.kill()
    (driver.state / "volumes" / "v" / "state.json").unlink()
    assert recover(driver, "--write").returncode == 0
    driver.start(wait=False)
    driver.wait_ready()
    code, end = CODE.ABORTED, time.monotonic() + 60 * SLOW
    while code == CODE.ABORTED and time.monotonic() < end:  # the driver waits for the users to go, for a while
        time.sleep(0.2)
        code, text = status_of(driver.delete, "v")
    assert code == CODE.FAILED_PRECONDITION and str(target) in text
    assert driver.state_of("v")["phase"] == "ready" and len(driver.branch_files("v")) == int(branches)
    (target / "f").write_text("still there")
    assert (target / "f").read_text() == "still there"
    driver.unpublish("v")
    subprocess.run(["umount", str(driver.staging("v"))], check=True)
    driver.delete("v")
    other.take_down("v")
    other.stop()


# -- a state that is damaged


@pytest.mark.parametrize("garbage", [b"", b"{", b"\0" * 4096, b'{"version": 1}', b"x" * (5 * MIB)],
                         ids=["empty", "torn", "zeroes", "no fields", "huge"])
def test_a_damaged_state_is_reported_kept_and_rebuilt(driver, garbage):
    volume_id, target = driver.bring_up("v")
    (target / "f").write_text("precious")
    put_away(driver, volume_id)
    driver.create("other")
    state = driver.state / "volumes" / "v" / "state.json"
    state.write_bytes(garbage)
    assert [e.volume.volume_id for e in driver.client.ListVolumes().entries] == ["other"]
    assert "volume `v` is not listed" in driver.log.read_text()
    driver.stop()
    done = recover(driver, "-o", "json")
    assert done.returncode == 0
    volume, = json.loads(done.stdout)["volumes"]
    assert volume["id"] == "v" and volume["damage"] and not volume["recovered"] and "problem" not in volume
    assert "state is damaged" in recover(driver).stdout and state.read_bytes() == garbage
    done = recover(driver, "--write")
    assert done.returncode == 0 and "recovered" in done.stdout
    assert (state.parent / "state.json.bad").read_bytes() == garbage
    driver.start()
    driver.attach("v")
    driver.stage("v")
    assert (driver.publish("v") / "f").read_text() == "precious"
    driver.take_down("v")
    driver.delete("other")


def test_a_damaged_state_whose_branches_are_gone_is_a_problem(driver):
    driver.create("v")
    driver.stop()
    state = driver.state / "volumes" / "v" / "state.json"
    good = state.read_text()
    state.write_text("{")
    for f in driver.branch_files("v"):
        f.rename(driver.work / f.name)
        f.with_suffix(".json").rename(driver.work / f.with_suffix(".json").name)
    done = recover(driver, "--write")
    assert done.returncode == 1 and "state is damaged" in done.stdout
    assert os.listdir(state.parent) == ["state.json"] and state.read_text() == "{"
    for i, pool in enumerate(driver.pools):
        for suffix in ("img", "json"):
            (driver.work / f"v.{i}.{suffix}").rename(pool / f"v.{i}.{suffix}")
    state.write_text(good)
    driver.start()
    driver.delete("v")


# -- a disk that was replaced


def uuid_of(pool):
    return json.loads((pool / ".union-csi-pool").read_text())["uuid"]


def test_a_replaced_disk_is_introduced_by_forgetting_the_old_one(make_driver, disk):
    disks = [disk("disk-a", 100 * MIB), disk("disk-b", 100 * MIB)]
    driver = make_driver(pools=disks).start()
    driver.create("v")
    old = uuid_of(disks[1])

    def forget(*args):
        return driver.cli("recover", f"--state-dir={driver.state}", f"--forget-pool={old}", *args, check=False)

    done = forget()
    assert done.returncode == 1 and "`v`" in done.stderr and old in done.stderr
    driver.delete("v")
    subprocess.run(["umount", str(disks[1])], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", f"{disks[1]}.img"], check=True)
    mount_image(f"{disks[1]}.img", disks[1])
    assert driver.becomes_ready(False)
    assert not (disks[1] / ".union-csi-pool").exists()
    done = forget("-o", "json")
    assert done.returncode == 0 and json.loads(done.stdout) == {"forgotten": old}
    assert driver.becomes_ready()  # it need not be started again
    assert uuid_of(disks[1]) != old
    driver.create("v")
    driver.delete("v")
    done = forget()
    assert done.returncode == 1 and "not known" in done.stderr


def test_no_pool_is_forgotten_while_a_state_cannot_be_read(driver):
    driver.create("v")
    state = driver.state / "volumes" / "v" / "state.json"
    good, known = state.read_text(), (driver.state / "pools.json").read_text()
    state.write_text("{")
    done = driver.cli("recover", f"--state-dir={driver.state}", f"--forget-pool={uuid_of(driver.pools[0])}",
                      check=False)
    assert done.returncode == 1 and "`v`" in done.stderr
    assert (driver.state / "pools.json").read_text() == known
    state.write_text(good)
    driver.delete("v")


# -- the command line


@pytest.mark.parametrize("args,word", [
    (["-o", "yaml"], "yaml"), (["-oyaml"], "yaml"), (["--output=yaml"], "yaml"), (["-o"], "-o"),
    (["--forget-pool=x"], "x"), (["--forget-pool"], "--forget-pool"), (["--nonsense"], "--nonsense"),
    (["more"], "more")])
def test_a_wrong_command_line_is_explained_with_exit_status_2(driver, args, word):
    done = recover(driver, *args)
    assert done.returncode == 2 and word in done.stderr and done.stdout == "", done.stderr


def test_help_and_version_are_printed_alone(driver):
    assert recover(driver, "--help").stdout.startswith("usage: union-csi recover")
    assert recover(driver, "--version").stdout.count("\n") == 1
    assert json.loads(recover(driver, "--output", "json").stdout) == {"volumes": []}
