# SPDX-License-Identifier: Apache-2.0
"""Layouts linear and striped: one filesystem on one mapped device over all branches."""

import json
import os
import pathlib
import subprocess

import grpc
import pytest

import fault_util
from csi_util import MIB, leftovers, servers, status_of

Code = grpc.StatusCode
HAS_DM = "device-mapper" in pathlib.Path("/proc/misc").read_text()
assert HAS_DM or "UC_VM" not in os.environ  # there nothing is skipped
needs_dm = pytest.mark.skipif(not HAS_DM, reason="the kernel has no device-mapper (dm_mod)")
LAYOUTS = {"linear": {"layout": "linear"}, "striped": {"layout": "striped", "stripeSize": "128Ki"}}


def dm(*args):
    return subprocess.run(["dmsetup", *args], check=True, capture_output=True, text=True).stdout


def name_of(driver):
    """What its volume's device is called, if it is there."""
    return f"union-csi-v-{driver.state_of('v')['branches'][0]['uuid'][:8]}"


def is_mapped(name):
    return name in dm("ls").split()


@pytest.fixture(params=LAYOUTS)
def layout(request):
    return LAYOUTS[request.param]


# -- what needs no device-mapper


def test_stripes_are_whole_and_branches_equal(driver):
    volume = driver.create("v", 64 * MIB + 1, layout="striped", stripeSize="1Mi", branches="3")
    sizes = {p.stat().st_size for p in driver.branch_files("v")}
    assert sizes == {22 * MIB} and volume.capacity_bytes == 66 * MIB
    assert driver.state_of("v")["segments"] == [
        {"start": 0, "length": 66 * MIB, "branch": 0, "branches": 3, "offset": 0, "stripeSize": MIB}]
    driver.delete("v")


def test_segments_of_linear_follow_each_other(driver):
    driver.create("v", 70 * MIB, layout="linear", branches="3")
    sizes = [p.stat().st_size for p in sorted(driver.branch_files("v"), key=lambda p: p.name)]
    assert sum(sizes) == 70 * MIB
    starts = [0, sizes[0], sizes[0] + sizes[1]]
    assert driver.state_of("v")["segments"] == [
        {"start": s, "length": n, "branch": i, "branches": 1, "offset": 0, "stripeSize": 0}
        for i, (s, n) in enumerate(zip(starts, sizes))]
    driver.delete("v")


@pytest.mark.parametrize("parameters,words", [
    ({"layout": "raid5"}, ["layout", "raid5"]), ({"layout": "linear", "policy": "mfs"}, ["policy", "linear"]),
    ({"layout": "striped", "minFreeSpace": "1Mi"}, ["minFreeSpace", "striped"]),
    ({"stripeSize": "64Ki"}, ["stripeSize", "union"]),
    ({"layout": "striped", "stripeSize": "65Ki"}, ["stripeSize", "65Ki"]),
    ({"layout": "striped", "stripeSize": "2Ki"}, ["stripeSize", "2Ki"])])
def test_what_means_nothing_is_refused_by_name(driver, parameters, words):
    code, text = status_of(driver.create, "v", **parameters)
    assert code == Code.INVALID_ARGUMENT and all(w in text for w in words)


def test_a_volume_that_differs_in_its_layout_is_another_one(driver):
    driver.create("v", layout="linear")
    for other in ({}, {"layout": "striped"}):
        code, text = status_of(driver.create, "v", **other)
        assert code == Code.ALREADY_EXISTS and "other parameters" in text
    driver.delete("v")


@pytest.mark.skipif(HAS_DM, reason="the kernel has device-mapper")
def test_a_kernel_without_device_mapper_is_named(driver, layout):
    volume_id = driver.create("v", **layout).volume_id
    driver.attach(volume_id)
    code, text = status_of(driver.stage, volume_id)
    assert code == Code.FAILED_PRECONDITION and "no device-mapper" in text
    driver.detach(volume_id)
    driver.delete(volume_id)


# -- with it


@pytest.mark.vm
@needs_dm
@pytest.mark.parametrize("fs", ["ext4", "xfs", "btrfs"])
def test_a_volume_is_one_filesystem_over_all_branches(driver, layout, fs):
    from csi_util import mount_capability

    capability = mount_capability(fs_type=fs)
    size = 640 * MIB if fs == "xfs" else 256 * MIB
    volume_id = driver.create("v", size, capability, **layout).volume_id
    driver.attach(volume_id, capability)
    driver.stage(volume_id, capability)
    target = driver.publish(volume_id, capability=capability)
    name = name_of(driver)
    assert is_mapped(name) and servers(driver.work) == []
    big = os.urandom(MIB) * 150  # more than one branch holds
    (target / "big").write_bytes(big)
    stats = driver.client.NodeGetVolumeStats(volume_id=volume_id, volume_path=str(target))
    assert stats.usage[0].total > size * 0.7
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    assert not is_mapped(name)
    subprocess.run(["sh", "-c", "echo 3 >/proc/sys/vm/drop_caches"], check=True)
    driver.stage(volume_id, capability)
    assert (driver.publish(volume_id, capability=capability) / "big").read_bytes() == big
    driver.take_down(volume_id)
    assert not is_mapped(name) and leftovers(driver) == []
    assert not os.path.lexists(f"/dev/mapper/{name}")


@pytest.mark.vm
@needs_dm
def test_the_table_is_that_of_the_state(driver, layout):
    volume_id, target = driver.bring_up("v", size=96 * MIB, branches="3", **layout)
    name = name_of(driver)
    lines = [line.split() for line in dm("table", name).splitlines()]
    for line, s in zip(lines, driver.state_of("v")["segments"], strict=True):
        assert [int(line[0]), int(line[1])] == [s["start"] // 512, s["length"] // 512]
        assert line[2] == layout["layout"]
        if layout["layout"] == "striped":
            assert line[3:5] == ["3", "256"]
    driver.take_down("v")


@pytest.mark.vm
@needs_dm
def test_a_killed_driver_leaves_the_volume_working_and_the_next_one_finds_it(driver, layout):
    volume_id, target = driver.bring_up("v", **layout)
    (target / "f").write_text("data")
    driver.kill()
    (target / "f").write_text("more")
    driver.start()
    driver.stage(volume_id)
    assert (driver.publish(volume_id) / "f").read_text() == "more"
    driver.take_down(volume_id)


@pytest.mark.vm
@needs_dm
def test_a_stage_that_is_killed_at_any_step_is_made_by_the_retry(make_driver, work, layout):
    faults = fault_util.Faults(work / "faults")
    driver = make_driver(env=faults.env()).start()
    volume_id = driver.create("v", **layout).volume_id
    driver.attach(volume_id)
    for only in ("open64", "openat64", "ioctl", "renameat", "fsmount", "move_mount"):
        faults.arm(fault_util.KILL, 1, only=only)
        code = None
        try:
            driver.stage(volume_id)
        except grpc.RpcError as e:
            code = e.code()
        killed = faults.fired
        faults.disarm()
        if killed:
            driver.process.wait()
            driver.process = None
            driver.start()
        assert killed or code is None
        driver.stage(volume_id)
        (driver.publish(volume_id) / "f").write_text(only)
        driver.unpublish(volume_id)
        driver.unstage(volume_id)
        assert not is_mapped(name_of(driver))
    driver.detach(volume_id)
    driver.delete(volume_id)


@pytest.mark.vm
@needs_dm
def test_a_map_that_is_not_ours_is_not_used_and_not_removed(driver, layout):
    volume_id, target = driver.bring_up("v", **layout)
    name = name_of(driver)
    table = dm("table", name)
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    state = driver.state_of("v")
    uuid = f"union-csi-{state['branches'][0]['uuid']}"
    subprocess.run(["dmsetup", "create", name, "-u", uuid, "--table", "0 8 zero"], check=True)
    code, text = status_of(driver.stage, volume_id)  # it can only be ours, of another time, and goes
    assert code == Code.FAILED_PRECONDITION and "another table" in text, table
    subprocess.run(["dmsetup", "create", name, "--table", "0 8 zero"], check=True)
    code, text = status_of(driver.stage, volume_id)
    assert code != Code.OK and name in text
    assert dm("table", name) == "0 8 zero \n"
    dm("remove", name)
    driver.stage(volume_id)
    assert (driver.publish(volume_id) / ".").exists()
    driver.take_down(volume_id)


@pytest.mark.vm
@needs_dm
def test_a_branch_that_somebody_else_holds_is_not_mapped(driver, layout):
    volume_id = driver.create("v", **layout).volume_id
    driver.attach(volume_id)
    [image, _] = driver.branch_files("v")
    holder = f"uc-test-{name_of(driver)}"
    loop = subprocess.run(["losetup", "-f", "--show", "--direct-io=on", image], check=True, capture_output=True,
                          text=True).stdout.strip()
    sectors = int(pathlib.Path(f"/sys/class/block/{os.path.basename(loop)}/size").read_text())
    subprocess.run(["dmsetup", "create", holder, "--table", f"0 {sectors} linear {loop} 0"], check=True)
    try:
        code, text = status_of(driver.stage, volume_id)
        assert code == Code.FAILED_PRECONDITION and "also mapped by `dm-" in text
    finally:
        dm("remove", holder)
    driver.stage(volume_id)
    driver.take_down(volume_id)


@pytest.mark.vm
@needs_dm
def test_space_stays_allocated(driver, layout):
    volume_id, target = driver.bring_up("v", size=128 * MIB, **layout)
    taken = [p.stat().st_blocks for p in driver.branch_files("v")]
    assert all(512 * n >= 64 * MIB for n in taken)
    (target / "f").write_bytes(os.urandom(40 * MIB))
    os.unlink(target / "f")
    os.sync()
    subprocess.run(["fstrim", target], capture_output=True)
    assert [p.stat().st_blocks for p in driver.branch_files("v")] == taken
    driver.take_down(volume_id)


@pytest.mark.vm
@needs_dm
def test_a_lost_state_is_rebuilt_with_its_segments(driver, layout):
    volume_id, target = driver.bring_up("v", branches="3", size=96 * MIB, **layout)
    (target / "f").write_text("precious")
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    driver.detach(volume_id)
    before = driver.state_of("v")["segments"]
    driver.stop()
    subprocess.run(["rm", "-r", driver.state], check=True)
    done = driver.cli("recover", f"--pool={','.join(map(str, driver.pools))}", f"--state-dir={driver.state}", "--write",
                      check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert driver.state_of("v")["segments"] == before
    driver.start()
    driver.attach(volume_id)
    driver.stage(volume_id)
    assert (driver.publish(volume_id) / "f").read_text() == "precious"
    driver.take_down(volume_id)


def test_a_state_whose_segments_lead_outside_the_branches_is_damaged(driver):
    driver.create("v", layout="linear")
    driver.stop()
    path = driver.state / "volumes" / "v" / "state.json"
    whole = path.read_text()
    for key, value in (("start", 4096), ("length", 1 << 40), ("branch", 2), ("branches", 3), ("offset", 4096)):
        state = json.loads(whole)
        state["segments"][1][key] = value
        path.write_text(json.dumps(state))
        driver.start()
        assert list(driver.client.ListVolumes().entries) == []
        assert "segments[1]" in driver.log.read_text()
        driver.stop()
    path.write_text(whole)
    driver.start()
    driver.delete("v")
