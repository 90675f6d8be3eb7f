"""CSI's Node service: volumes staged, published, measured, and given back."""

import os
import resource
import stat
import subprocess

import grpc
import pytest

import csi_pb2 as csi
from csi_util import (GIB, MIB, MODE, block_capability, loops_below, mount_capability, mounts_below, servers, status_of)

CODE = grpc.StatusCode

# A volume of one branch is a plain mount, one of several a union: the same tests hold for both.
KINDS = pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])


def fstype_at(path):
    return subprocess.run(["findmnt", "-n", "-o", "FSTYPE", "--mountpoint", str(path)], text=True,
                          capture_output=True).stdout.strip().splitlines()[-1]


def options_at(path):
    out = subprocess.run(["findmnt", "-n", "-o", "VFS-OPTIONS", "--mountpoint", str(path)], text=True,
                         capture_output=True).stdout
    return set(out.strip().splitlines()[-1].split(","))


# -- the main job


@KINDS
def test_a_published_volume_holds_files_until_it_is_given_back(driver, branches):
    volume_id, target = driver.bring_up("v", 64 * MIB, branches=branches)
    assert fstype_at(target) == ("ext4" if branches == "1" else "fuse.union-fs")
    (target / "dir").mkdir()
    (target / "dir" / "file").write_bytes(b"x" * MIB)
    driver.unpublish(volume_id)
    assert not target.exists()
    driver.unstage(volume_id)
    assert loops_below(driver.work) == [] and mounts_below(driver.work) == []
    driver.stage(volume_id)
    driver.publish(volume_id)
    assert (target / "dir" / "file").read_bytes() == b"x" * MIB
    driver.take_down(volume_id)


def test_a_union_is_larger_than_any_branch_and_shows_no_lost_and_found(driver):
    volume_id, target = driver.bring_up("v", 96 * MIB, branches="3")
    assert os.listdir(target) == []
    usage = os.statvfs(target)
    assert usage.f_blocks * usage.f_frsize > 64 * MIB
    for i in range(8):
        (target / f"f{i}").write_bytes(bytes([i]) * 8 * MIB)  # 64 MiB: no branch alone holds that
    for i in range(8):
        assert (target / f"f{i}").read_bytes() == bytes([i]) * 8 * MIB
    driver.take_down(volume_id)


@pytest.mark.parametrize("fs,size", [("ext4", 64 * MIB), ("xfs", 640 * MIB), ("btrfs", 256 * MIB)])
@KINDS
def test_every_filesystem_that_can_be_asked_for_works(driver, fs, size, branches):
    c = mount_capability(fs_type=fs)
    volume_id, target = driver.bring_up("v", size, c, branches=branches)
    if branches == "1":
        assert fstype_at(target) == fs
    (target / "f").write_bytes(b"data")
    os.link(target / "f", target / "g")
    os.rename(target / "g", target / "h")
    assert (target / "h").read_bytes() == b"data"
    driver.take_down(volume_id)


@KINDS
def test_everything_is_idempotent(driver, branches):
    for _ in range(3):
        driver.create("v", branches=branches)
    for _ in range(3):
        driver.attach("v")
    for _ in range(3):
        driver.stage("v")
    for _ in range(3):
        target = driver.publish("v")
    (target / "f").write_text("x")
    assert len([m for m in mounts_below(driver.work) if m.startswith(str(target))]) == 1
    for step in (driver.unpublish, driver.unstage, driver.detach, driver.delete):
        for _ in range(3):
            step("v")


# -- several targets, read-only, access modes


@KINDS
def test_a_volume_can_be_published_several_times(driver, branches):
    volume_id, first = driver.bring_up("v", branches=branches)
    second = driver.publish(volume_id, "second")
    third = driver.publish(volume_id, "third", readonly=True)
    (first / "f").write_text("hello")
    assert (second / "f").read_text() == (third / "f").read_text() == "hello"
    with pytest.raises(OSError, match="Read-only"):
        (third / "g").write_text("x")
    (second / "g").write_text("x")  # that the third is read-only concerns nobody else
    code, text = status_of(driver.unstage, volume_id)
    assert code == CODE.FAILED_PRECONDITION and str(first) in text
    driver.unpublish(volume_id)
    assert (second / "f").read_text() == "hello"
    driver.take_down(volume_id, names=("second", "third"))


def test_publishing_otherwise_at_the_same_target_is_already_exists(driver):
    volume_id, target = driver.bring_up("v", branches="1")
    assert status_of(driver.publish, volume_id, readonly=True)[0] == CODE.ALREADY_EXISTS
    assert status_of(driver.publish, volume_id, capability=mount_capability(flags=["noatime"]))[0] == \
        CODE.ALREADY_EXISTS
    (target / "f").write_text("still writable")
    driver.take_down(volume_id)


@pytest.mark.parametrize("mode,other", [
    (MODE.SINGLE_NODE_SINGLE_WRITER, MODE.SINGLE_NODE_SINGLE_WRITER),
    (MODE.SINGLE_NODE_MULTI_WRITER, MODE.SINGLE_NODE_SINGLE_WRITER)])
def test_a_single_writer_is_alone(driver, mode, other):
    volume_id, target = driver.bring_up("v", 64 * MIB, mount_capability(mode), branches="1")
    code, text = status_of(driver.publish, volume_id, "second", capability=mount_capability(other))
    assert code == CODE.FAILED_PRECONDITION and "SINGLE_NODE_SINGLE_WRITER" in text
    driver.publish(volume_id, capability=mount_capability(mode))  # the same target again is fine
    driver.take_down(volume_id)


@KINDS
def test_a_reader_only_volume_is_never_writable(driver, branches):
    c = mount_capability(MODE.SINGLE_NODE_READER_ONLY)
    volume_id, target = driver.bring_up("v", 64 * MIB, c, branches=branches)
    with pytest.raises(OSError, match="Read-only"):
        (target / "f").write_text("x")
    driver.take_down(volume_id)


def test_a_volume_that_is_attached_read_only_is_published_read_only(driver):
    driver.create("v", branches="1")
    driver.attach("v", readonly=True)
    driver.stage("v")
    target = driver.publish("v")
    assert "ro" in options_at(target)
    driver.take_down("v")


@KINDS
def test_mount_flags_take_effect(driver, branches):
    c = mount_capability(flags=["noatime", "nosuid", "nodev,noexec"])
    volume_id, target = driver.bring_up("v", 64 * MIB, c, branches=branches)
    assert {"noatime", "nosuid", "nodev", "noexec"} <= options_at(target)
    script = target / "s"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o755)
    with pytest.raises(PermissionError):
        subprocess.run([str(script)])
    driver.take_down(volume_id)


@KINDS
def test_options_of_the_filesystem_reach_it(driver, branches):
    c = mount_capability(flags=["commit=7", "errors=remount-ro"])
    volume_id, target = driver.bring_up("v", 64 * MIB, c, branches=branches)
    (target / "f").write_text("x")
    driver.take_down(volume_id)


def test_an_option_that_could_stop_the_machine_is_refused_by_name(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    for flag, named in (("errors=panic", "errors=panic"), ("noatime,errors=panic,discard", "errors=panic"),
                        ('errors="panic"', "panic"), ("journal_dev=2049", "journal_dev"),
                        ("journal_path=/dev/sda", "journal_path")):
        code, text = status_of(driver.stage, "v", mount_capability(flags=[flag]))
        assert code == CODE.INVALID_ARGUMENT and named in text, text
        code, text = status_of(driver.create, "w", capability=mount_capability(flags=[flag]))
        assert code == CODE.INVALID_ARGUMENT and named in text, text
    driver.detach("v")
    driver.delete("v")


@KINDS
def test_an_option_that_the_filesystem_does_not_know_fails_by_name_and_leaves_nothing(driver, branches):
    driver.create("v", branches=branches)
    driver.attach("v")
    for flag in ("no-such-option", "commit=soon"):
        code, text = status_of(driver.stage, "v", mount_capability(flags=["noatime", flag]))
        assert code == CODE.INVALID_ARGUMENT and flag in text, text
    assert loops_below(driver.work) == [] and mounts_below(driver.work) == []
    assert driver.state_of("v")["stage"]["phase"] == "none"
    driver.stage("v")
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


# -- volume_mount_group


def make_deep_tree(top, depth):
    fd = os.open(top, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=fd)
        os.close(os.open("f", os.O_CREAT | os.O_WRONLY, 0o600, dir_fd=fd))
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    return fd


def groups_upwards(fd, depth):
    """The groups of what make_deep_tree() made, from its deepest directory up."""
    found = set()
    for _ in range(depth):
        above = os.open("..", os.O_RDONLY, dir_fd=fd)
        found |= {os.fstat(fd).st_gid, os.stat("f", dir_fd=above).st_gid}
        os.close(fd)
        fd = above
    os.close(fd)
    return found


@pytest.mark.parametrize("branches,depth", [("1", 4000), ("2", 1500)], ids=["plain", "union"])
def test_the_mount_group_of_a_deep_tree_takes_few_descriptors(driver, branches, depth):
    volume_id, target = driver.bring_up("v", 128 * MIB, branches=branches)
    deepest = make_deep_tree(target, depth)
    assert groups_upwards(deepest, depth) == {0}
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    resource.prlimit(driver.process.pid, resource.RLIMIT_NOFILE, (128, 128))
    c = mount_capability(group="4242")
    driver.stage(volume_id, c)
    target = driver.publish(volume_id, capability=c)
    fd = os.open(target, os.O_RDONLY)
    for _ in range(depth):
        below = os.open("d", os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    assert groups_upwards(fd, depth) == {4242}
    driver.take_down(volume_id)


@KINDS
def test_the_mount_group_gets_everything_and_is_applied_once(driver, branches):
    volume_id, target = driver.bring_up("v", 64 * MIB, branches=branches)
    (target / "d").mkdir(mode=0o700)
    (target / "d" / "f").write_text("x")
    (target / "d" / "f").chmod(0o600)
    (target / "l").symlink_to("/etc/passwd")
    driver.unpublish(volume_id)
    driver.unstage(volume_id)

    c = mount_capability(group="4242")
    passwd = os.stat("/etc/passwd")
    driver.stage(volume_id, c)
    driver.publish(volume_id, capability=c)
    for path in (target, target / "d", target / "d" / "f", target / "l"):
        assert os.lstat(path).st_gid == 4242
    assert stat.S_IMODE(os.stat(target / "d").st_mode) == 0o2770
    assert stat.S_IMODE(os.stat(target / "d" / "f").st_mode) == 0o660
    assert os.stat("/etc/passwd") == passwd
    (target / "d" / "new").write_text("x")
    assert os.stat(target / "d" / "new").st_gid == 4242  # by the directory's setgid bit

    os.chown(target / "d" / "f", 0, 0)  # the root's group is right: nothing is walked again
    driver.unpublish(volume_id)
    driver.publish(volume_id, capability=c)
    assert os.stat(target / "d" / "f").st_gid == 0
    driver.take_down(volume_id)


# -- errors


def test_requests_that_lack_something_are_refused_by_name(driver):
    volume_id = driver.create("v", branches="1").volume_id
    c, staging, target = mount_capability(), str(driver.staging("v")), str(driver.target("v"))
    n = driver.client
    for call, fields, field in [
            (n.NodeStageVolume, dict(staging_target_path=staging, volume_capability=c), "volume_id"),
            (n.NodeStageVolume, dict(volume_id=volume_id, volume_capability=c), "staging_target_path"),
            (n.NodeStageVolume, dict(volume_id=volume_id, staging_target_path=staging), "volume_capability"),
            (n.NodeUnstageVolume, dict(staging_target_path=staging), "volume_id"),
            (n.NodeUnstageVolume, dict(volume_id=volume_id), "staging_target_path"),
            (n.NodePublishVolume, dict(target_path=target, volume_capability=c), "volume_id"),
            (n.NodePublishVolume, dict(volume_id=volume_id, volume_capability=c), "target_path"),
            (n.NodePublishVolume, dict(volume_id=volume_id, target_path=target), "volume_capability"),
            (n.NodeUnpublishVolume, dict(target_path=target), "volume_id"),
            (n.NodeUnpublishVolume, dict(volume_id=volume_id), "target_path"),
            (n.NodeGetVolumeStats, dict(volume_path=target), "volume_id"),
            (n.NodeGetVolumeStats, dict(volume_id=volume_id), "volume_path"),
            (n.NodeStageVolume, dict(volume_id=volume_id, staging_target_path=staging,
                                     volume_capability=block_capability()), "block"),
            (n.NodeStageVolume, dict(volume_id=volume_id, staging_target_path=staging,
                                     volume_capability=mount_capability(fs_type="xfs")), "xfs")]:
        code, text = status_of(call, **fields)
        assert code == CODE.INVALID_ARGUMENT and field in text, (text, field)
    driver.delete(volume_id)


def test_what_does_not_exist_is_not_found(driver):
    for call in (driver.stage, driver.publish):
        assert status_of(call, "no-such-volume")[0] == CODE.NOT_FOUND
    driver.unpublish("no-such-volume")
    driver.unstage("no-such-volume")
    driver.client.NodeUnpublishVolume(volume_id="../../etc", target_path=str(driver.kubelet / "t"))


def test_publishing_needs_staging_at_the_same_path(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    assert status_of(driver.publish, "v")[0] == CODE.FAILED_PRECONDITION
    driver.stage("v")
    target = driver.target("v")
    for staging in ("", str(driver.kubelet / "elsewhere")):
        code, _ = status_of(driver.client.NodePublishVolume, volume_id="v", staging_target_path=staging,
                            target_path=str(target), volume_capability=mount_capability())
        assert code == CODE.FAILED_PRECONDITION
    code, text = status_of(driver.client.NodeStageVolume, volume_id="v",
                           staging_target_path=str(driver.kubelet / "elsewhere"),
                           volume_capability=mount_capability())
    assert code == CODE.FAILED_PRECONDITION and "staging/v" in text
    assert status_of(driver.stage, "v", mount_capability(MODE.SINGLE_NODE_MULTI_WRITER))[0] == CODE.ALREADY_EXISTS
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def test_a_target_that_holds_something_is_not_hidden(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    driver.stage("v")
    target = driver.target("v")
    target.mkdir(parents=True)
    (target / "precious").write_text("x")
    code, text = status_of(driver.publish, "v")
    assert code == CODE.FAILED_PRECONDITION and "not empty" in text
    assert status_of(driver.unpublish, "v")[0] == CODE.FAILED_PRECONDITION  # and not removed either
    assert (target / "precious").read_text() == "x"
    (target / "precious").unlink()
    subprocess.run(["mount", "-t", "tmpfs", "other", str(target)], check=True)
    code, text = status_of(driver.publish, "v")
    assert code == CODE.FAILED_PRECONDITION and "tmpfs" in text
    assert status_of(driver.unpublish, "v")[0] == CODE.FAILED_PRECONDITION
    subprocess.run(["umount", str(target)], check=True)
    driver.publish("v")
    driver.take_down("v")


def test_a_missing_target_is_unpublished(driver):
    volume_id, target = driver.bring_up("v", branches="1")
    subprocess.run(["umount", str(target)], check=True)
    os.rmdir(target)
    driver.unpublish(volume_id)
    driver.publish(volume_id)
    subprocess.run(["umount", str(target)], check=True)
    os.rmdir(target)
    os.rmdir(target.parent)
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    driver.detach(volume_id)
    driver.delete(volume_id)


def test_a_volume_in_use_is_not_taken_from_under_its_user(driver):
    volume_id, target = driver.bring_up("v", branches="1")
    with open(target / "f", "w") as f:
        code, _ = status_of(driver.unpublish, volume_id)
        assert code == CODE.FAILED_PRECONDITION
        f.write("still there")
    assert (target / "f").read_text() == "still there"
    driver.take_down(volume_id)


# -- NodeGetVolumeStats, NodeGetInfo


@KINDS
def test_stats_are_those_of_the_filesystem(driver, branches):
    volume_id, target = driver.bring_up("v", 128 * MIB, branches=branches)
    (target / "f").write_bytes(b"x" * 10 * MIB)
    os.sync()
    for path in (target, driver.staging(volume_id)):
        usage = {u.unit: u for u in driver.client.NodeGetVolumeStats(volume_id=volume_id,
                                                                     volume_path=str(path)).usage}
        st = os.statvfs(target)
        size = usage[csi.VolumeUsage.BYTES]
        assert size.total == st.f_blocks * st.f_frsize
        assert abs(size.available - st.f_bavail * st.f_frsize) < MIB
        assert 10 * MIB <= size.used < 40 * MIB
        inodes = usage[csi.VolumeUsage.INODES]
        assert inodes.total == st.f_files and inodes.used + inodes.available == inodes.total
    driver.take_down(volume_id)


def test_stats_of_where_the_volume_is_not_are_not_found(driver):
    volume_id, target = driver.bring_up("v", branches="1")
    stats = driver.client.NodeGetVolumeStats
    for fields in (dict(volume_id="w", volume_path=str(target)), dict(volume_id=volume_id, volume_path="some/path"),
                   dict(volume_id=volume_id, volume_path="/etc"),
                   dict(volume_id=volume_id, volume_path=str(target.parent))):
        assert status_of(stats, **fields)[0] == CODE.NOT_FOUND
    subprocess.run(["umount", str(target)], check=True)
    assert status_of(stats, volume_id=volume_id, volume_path=str(target))[0] == CODE.NOT_FOUND
    driver.take_down(volume_id)


def test_node_info_has_the_id_and_the_topology(driver):
    info = driver.client.NodeGetInfo()
    assert info.node_id == "test-node"
    assert dict(info.accessible_topology.segments) == {"topology.union.csi.union.io/node": "test-node"}


def test_the_capabilities_are_those_that_work(driver):
    rpc = csi.NodeServiceCapability.RPC
    assert {c.rpc.type for c in driver.client.NodeGetCapabilities().capabilities} == {
        rpc.STAGE_UNSTAGE_VOLUME, rpc.GET_VOLUME_STATS, rpc.SINGLE_NODE_MULTI_WRITER, rpc.VOLUME_MOUNT_GROUP}


# -- space


@pytest.mark.parametrize("fs,size", [("ext4", 128 * MIB), ("xfs", 640 * MIB), ("btrfs", 300 * MIB)])
@KINDS
def test_reserved_space_stays_reserved_whatever_the_filesystem_does(driver, fs, size, branches):
    c = mount_capability(fs_type=fs)

    def allocated():
        return [f.stat().st_blocks * 512 >= f.stat().st_size for f in driver.branch_files("v")]

    volume_id, target = driver.bring_up("v", size, c, branches=branches)
    assert all(allocated()), "after mkfs"
    with open(target / "big", "wb") as f:
        for _ in range(size // (8 if fs == "btrfs" else 4) // MIB):
            f.write(os.urandom(MIB))
        os.fsync(f.fileno())
    assert all(allocated()), "after filling"
    os.unlink(target / "big")
    os.sync()
    subprocess.run(["fstrim", str(target)], capture_output=True)
    assert all(allocated()), "after fstrim"
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    assert all(allocated()), "after unmounting"
    driver.detach(volume_id)
    driver.delete(volume_id)


def test_a_thin_volume_gives_space_back(make_driver):
    driver = make_driver("--thin").start()
    volume_id, target = driver.bring_up("v", 1 * GIB, branches="1")
    with open(target / "big", "wb") as f:
        f.write(os.urandom(64 * MIB))
        os.fsync(f.fileno())
    image, = driver.branch_files("v")
    assert image.stat().st_blocks * 512 > 64 * MIB
    os.unlink(target / "big")
    os.sync()
    subprocess.run(["fstrim", str(target)], check=True)
    assert image.stat().st_blocks * 512 < 48 * MIB  # the journal stays
    driver.take_down(volume_id)


# -- the volume server


def test_a_volume_server_is_one_process_and_ends_with_the_staging(driver):
    volume_id, _ = driver.bring_up("v", branches="2")
    before = servers(driver.work)
    assert len(before) == 1
    driver.unpublish(volume_id)
    driver.unstage(volume_id)
    assert servers(driver.work) == []
    driver.detach(volume_id)
    driver.delete(volume_id)
