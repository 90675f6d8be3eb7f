"""CSI's Controller service: every RPC, and the errors that the specification's tables ask for."""

import re

import grpc
import pytest

import csi_pb2 as csi
from csi_util import GIB, MIB, MODE, block_capability, mount_capability, status_of

CODE = grpc.StatusCode


def create_request(name="v", size=64 * MIB, limit=0, capabilities=None, parameters=None, **fields):
    return csi.CreateVolumeRequest(
        name=name, capacity_range=csi.CapacityRange(required_bytes=size, limit_bytes=limit),
        volume_capabilities=[mount_capability()] if capabilities is None else capabilities,
        parameters=parameters or {}, **fields)


# -- CreateVolume


def test_a_volume_has_at_least_the_size_asked_for_and_its_space_is_reserved(driver):
    v = driver.create("v1", 100 * MIB + 1)
    assert v.volume_id == "v1"
    assert 100 * MIB + 1 <= v.capacity_bytes < 100 * MIB + 1 + 4096
    files = driver.branch_files("v1")
    assert [f.parent for f in files] == driver.pools
    assert sum(f.stat().st_size for f in files) == v.capacity_bytes
    assert all(f.stat().st_blocks * 512 >= f.stat().st_size for f in files)
    driver.delete("v1")


def test_branch_i_lies_in_pool_i_mod_n_and_the_last_one_has_the_remainder(driver):
    driver.create("v1", 50 * MIB + 4096, branches="3")
    sizes = {f.name: (f.parent, f.stat().st_size) for f in driver.branch_files("v1")}
    each = (50 * MIB + 4096) // 4096 // 3 * 4096
    assert sizes == {"v1.0.img": (driver.pools[0], each), "v1.1.img": (driver.pools[1], each),
                     "v1.2.img": (driver.pools[0], 50 * MIB + 4096 - 2 * each)}
    driver.delete("v1")


def test_thin_volumes_take_space_only_when_it_is_written(make_driver):
    driver = make_driver("--thin").start()
    driver.create("v1", 1 * GIB)
    assert all(f.stat().st_blocks * 512 < MIB for f in driver.branch_files("v1"))
    driver.delete("v1")


def test_creation_is_idempotent(driver):
    answers = {driver.client.CreateVolume(create_request()).SerializeToString() for _ in range(5)}
    assert len(answers) == 1
    assert len(driver.branch_files()) == 2
    driver.delete("v")


@pytest.mark.parametrize("other", [
    dict(size=128 * MIB),
    dict(size=32 * MIB, limit=40 * MIB),
    dict(parameters={"branches": "3"}),
    dict(parameters={"policy": "epmfs"}),
    dict(parameters={"minFreeSpace": "1Mi"}),
    dict(parameters={"maxBranchSize": "40Mi"}),
    dict(size=64 * MIB, capabilities=[mount_capability(fs_type="btrfs")]),
], ids=lambda o: ",".join(o))
def test_a_volume_of_that_name_that_differs_is_already_exists(driver, other):
    driver.client.CreateVolume(create_request())
    code, text = status_of(driver.client.CreateVolume, create_request(**other))
    # A volume that could not exist at all is refused for that.
    assert code in (CODE.ALREADY_EXISTS,) or "filesystem needs" in text
    driver.delete("v")


def test_a_smaller_request_is_content_with_a_larger_volume(driver):
    driver.client.CreateVolume(create_request(size=64 * MIB))
    assert driver.client.CreateVolume(create_request(size=32 * MIB)).volume.capacity_bytes == 64 * MIB
    driver.delete("v")


@pytest.mark.parametrize("request_, field", [
    (create_request(name=""), "name"),
    (create_request(capabilities=[]), "volume_capabilities"),
    (create_request(name="x" * 129), "name"),
    (create_request(name="a\nb"), "name"),
    (create_request(name="a\x00b"), "name"),
    (create_request(name="a\x7fb"), "name"),
    (create_request(size=-5), "capacity_range.required_bytes"),
    (create_request(limit=-5), "capacity_range.limit_bytes"),
    (create_request(capabilities=[csi.VolumeCapability()]), "access_type"),
    (create_request(capabilities=[csi.VolumeCapability(mount={})]), "access_mode"),
    (create_request(capabilities=[block_capability()]), "block"),
    (create_request(capabilities=[mount_capability(MODE.MULTI_NODE_MULTI_WRITER)]), "MULTI_NODE_MULTI_WRITER"),
    (create_request(capabilities=[mount_capability(MODE.MULTI_NODE_READER_ONLY)]), "MULTI_NODE_READER_ONLY"),
    (create_request(capabilities=[mount_capability(MODE.MULTI_NODE_SINGLE_WRITER)]), "MULTI_NODE_SINGLE_WRITER"),
    (create_request(capabilities=[mount_capability(99)]), "99"),
    (create_request(capabilities=[mount_capability(fs_type="ntfs")]), "ntfs"),
    (create_request(capabilities=[mount_capability(flags=["bind"])]), "bind"),
    (create_request(capabilities=[mount_capability(group="staff")]), "staff"),
    (create_request(capabilities=[mount_capability(fs_type="xfs"), mount_capability(fs_type="ext4")]), "xfs"),
    (create_request(parameters={"brunches": "2"}), "brunches"),
    (create_request(parameters={"branches": "0"}), "branches"),
    (create_request(parameters={"branches": "two"}), "two"),
    (create_request(parameters={"branches": "1025"}), "1025"),
    (create_request(parameters={"maxBranchSize": "big"}), "big"),
    (create_request(parameters={"maxBranchSize": "0"}), "maxBranchSize"),
    (create_request(parameters={"policy": "rand"}), "rand"),
    (create_request(parameters={"minFreeSpace": "-1"}), "minFreeSpace"),
    (create_request(parameters={"layout": "raid1"}), "raid1"),
    (create_request(parameters={"csi.storage.k8s.io/fstype": "xfs"}), "csi.storage.k8s.io/fstype"),
    (create_request(parameters={"x": "y" * 5000}), "parameters"),
    (create_request(mutable_parameters={"iops": "1"}), "iops"),
    (create_request(volume_content_source={"volume": {"volume_id": "w"}}), "volume_content_source"),
], ids=lambda v: v if isinstance(v, str) else "")
def test_bad_input_is_invalid_argument_and_names_the_field(driver, request_, field):
    code, text = status_of(driver.client.CreateVolume, request_)
    assert code == CODE.INVALID_ARGUMENT, text
    assert field in text


@pytest.mark.parametrize("request_", [
    create_request(size=64 * MIB, limit=32 * MIB),
    create_request(size=16 * MIB),  # 8 MiB a branch
    create_request(size=1),
    create_request(size=2**62),
    create_request(size=64 * MIB + 1, limit=64 * MIB + 2),  # not in units of 4096
    create_request(size=512 * MIB, capabilities=[mount_capability(fs_type="xfs")]),
    create_request(size=255 * MIB, capabilities=[mount_capability(fs_type="btrfs")]),
    create_request(size=64 * GIB, parameters={"maxBranchSize": "16Mi"}),  # 4096 branches
    create_request(parameters={"maxBranchSize": "8Mi"}),
], ids=range(9))
def test_sizes_that_cannot_be_had_are_out_of_range(driver, request_):
    code, text = status_of(driver.client.CreateVolume, request_)
    assert code in (CODE.OUT_OF_RANGE, CODE.RESOURCE_EXHAUSTED) if request_.capacity_range.required_bytes == 2**62 \
        else code == CODE.OUT_OF_RANGE, text


def test_a_range_without_a_wish_gets_a_size_within_its_limit(driver):
    v = driver.client.CreateVolume(create_request(size=0, limit=100 * MIB)).volume
    assert v.capacity_bytes == 100 * MIB
    driver.delete("v")
    v = driver.client.CreateVolume(create_request(size=0)).volume
    assert v.capacity_bytes == 1 * GIB
    driver.delete("v")


def test_max_branch_size_makes_more_branches(driver):
    driver.client.CreateVolume(create_request(size=100 * MIB, parameters={"maxBranchSize": "32Mi"}))
    sizes = [f.stat().st_size for f in driver.branch_files("v")]
    assert len(sizes) == 4 and max(sizes) <= 32 * MIB and sum(sizes) == 100 * MIB
    driver.delete("v")


HOSTILE = ["..", ".", "/", "../../etc/passwd", "a/b", "-rf", ".hidden", "a b", "a\u00e9", "\u202e", "x" * 128,
           "\U0001f4be" * 32, "%s%n", "$(reboot)", "`id`", "a;b", "'", '"', "\\", "*", "h-" + "0" * 40, "trailing.",
           "A" * 64, "con", "a:b", "a,b", "a=b"]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_makes_a_volume_like_any_other(driver, name):
    v = driver.create(name)
    assert driver.create(name).volume_id == v.volume_id
    assert len(v.volume_id) <= 63 and v.volume_id.replace("-", "").replace(".", "").replace("_", "").isalnum()
    assert {f.parent for f in driver.branch_files()} == set(driver.pools)
    assert [d.name for d in (driver.state / "volumes").iterdir()] == [v.volume_id]
    assert driver.state_of(v.volume_id)["name"] == name
    driver.delete(v.volume_id)


def test_hostile_names_do_not_collide(driver):
    ids = {name: driver.create(name, 32 * MIB).volume_id for name in HOSTILE}
    assert len(set(ids.values())) == len(HOSTILE)
    for volume_id in ids.values():
        driver.delete(volume_id)


def test_accessibility_elsewhere_is_resource_exhausted(driver):
    key = driver.client.NodeGetInfo().accessible_topology.segments
    here, = key.items()
    elsewhere = csi.Topology(segments={here[0]: "other-node"})
    code, _ = status_of(driver.client.CreateVolume, create_request(
        accessibility_requirements=csi.TopologyRequirement(requisite=[elsewhere])))
    assert code == CODE.RESOURCE_EXHAUSTED
    v = driver.client.CreateVolume(create_request(accessibility_requirements=csi.TopologyRequirement(
        requisite=[elsewhere, csi.Topology(segments=dict([here]))]))).volume
    assert dict(v.accessible_topology[0].segments) == dict([here])
    driver.delete("v")


# -- DeleteVolume


def test_deleting_what_does_not_exist_is_fine(driver):
    for volume_id in ("nothing", "../..", "a/b", "x" * 128):
        driver.delete(volume_id)


@pytest.mark.parametrize("volume_id", ["", "x" * 129, "a\nb", "a\x00b"])
def test_a_volume_id_that_cannot_be_is_invalid_argument(driver, volume_id):
    for call in ("DeleteVolume", "ControllerGetVolume", "ControllerUnpublishVolume"):
        code, text = status_of(getattr(driver.client, call), volume_id=volume_id)
        assert (code, "volume_id" in text) == (CODE.INVALID_ARGUMENT, True), (call, text)


def test_a_volume_that_is_attached_or_staged_is_not_deleted(driver):
    driver.create("v", branches="1")
    driver.attach("v")
    assert status_of(driver.delete, "v")[0] == CODE.FAILED_PRECONDITION
    driver.stage("v")
    assert status_of(driver.delete, "v")[0] == CODE.FAILED_PRECONDITION
    assert status_of(driver.detach, "v")[0] == CODE.FAILED_PRECONDITION
    assert len(driver.branch_files("v")) == 1
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


# -- ControllerPublishVolume, ControllerUnpublishVolume


def test_attaching_is_idempotent_and_shown(driver):
    driver.create("v")
    for _ in range(3):
        driver.attach("v")
    listed, = driver.client.ListVolumes().entries
    assert list(listed.status.published_node_ids) == ["test-node"]
    assert list(driver.client.ControllerGetVolume(volume_id="v").status.published_node_ids) == ["test-node"]
    for _ in range(3):
        driver.detach("v")
    assert not driver.client.ListVolumes().entries[0].status.published_node_ids
    driver.delete("v")


def test_attaching_otherwise_is_already_exists(driver):
    driver.create("v")
    driver.attach("v")
    assert status_of(driver.attach, "v", readonly=True)[0] == CODE.ALREADY_EXISTS
    driver.client.ControllerUnpublishVolume(volume_id="v")  # no node: from all
    driver.attach("v", readonly=True)
    driver.detach("v")
    driver.delete("v")


def test_attaching_needs_a_volume_a_node_and_a_capability(driver):
    driver.create("v")
    publish = driver.client.ControllerPublishVolume
    c = mount_capability()
    assert status_of(publish, node_id="test-node", volume_capability=c)[0] == CODE.INVALID_ARGUMENT
    assert status_of(publish, volume_id="v", volume_capability=c)[0] == CODE.INVALID_ARGUMENT
    assert status_of(publish, volume_id="v", node_id="test-node")[0] == CODE.INVALID_ARGUMENT
    assert status_of(publish, volume_id="w", node_id="test-node", volume_capability=c)[0] == CODE.NOT_FOUND
    assert status_of(publish, volume_id="v", node_id="w", volume_capability=c)[0] == CODE.NOT_FOUND
    assert status_of(publish, volume_id="v", node_id="n" * 300, volume_capability=c)[0] == CODE.INVALID_ARGUMENT
    driver.delete("v")


def test_detaching_what_is_not_attached_is_fine(driver):
    driver.create("v")
    driver.detach("v")
    driver.client.ControllerUnpublishVolume(volume_id="v", node_id="no-such-node")
    driver.client.ControllerUnpublishVolume(volume_id="no-such-volume", node_id="test-node")
    driver.delete("v")


# -- ValidateVolumeCapabilities


PROVISIONERS = {"storage.kubernetes.io/csiProvisionerIdentity": "1-2-union"}


def test_supported_capabilities_are_confirmed_with_what_was_asked(driver):
    driver.create("v")
    answer = driver.client.ValidateVolumeCapabilities(
        volume_id="v", volume_capabilities=[mount_capability(), mount_capability(MODE.SINGLE_NODE_MULTI_WRITER)],
        volume_context=PROVISIONERS, parameters={"branches": "2"})
    assert len(answer.confirmed.volume_capabilities) == 2
    assert dict(answer.confirmed.volume_context) == PROVISIONERS
    assert dict(answer.confirmed.parameters) == {"branches": "2"}
    driver.delete("v")


def test_what_a_volume_was_made_with_is_confirmed(make_driver):
    driver = make_driver("--thin").start()
    parameters = {"policy": "epmfs", "maxBranchSize": "400Mi", "minFreeSpace": "1Mi"}
    driver.create("v", 700 * MIB, mount_capability(fs_type="xfs"), **parameters)
    for fs_type in ("", "xfs"):
        answer = driver.client.ValidateVolumeCapabilities(
            volume_id="v", volume_capabilities=[mount_capability(fs_type=fs_type)], parameters=parameters)
        assert answer.HasField("confirmed"), answer.message
    driver.delete("v")


@pytest.mark.parametrize("fields", [
    dict(volume_capabilities=[block_capability()]),
    dict(volume_capabilities=[mount_capability(), mount_capability(MODE.MULTI_NODE_MULTI_WRITER)]),
    dict(volume_capabilities=[mount_capability()], parameters={"no": "such"}),
    dict(volume_capabilities=[mount_capability(), mount_capability(fs_type="xfs")]),
    dict(volume_capabilities=[mount_capability()], parameters={"branches": "7"}),
    dict(volume_capabilities=[mount_capability()], parameters={"policy": "epmfs"}),
    dict(volume_capabilities=[mount_capability()], parameters={"maxBranchSize": "1Gi"}),
    dict(volume_capabilities=[mount_capability()], parameters={"minFreeSpace": "1Gi"}),
    dict(volume_capabilities=[mount_capability()], volume_context={"foreign": "b"}),
    dict(volume_capabilities=[mount_capability()], mutable_parameters={"mutable": "b"}),
], ids=["block", "MULTI_NODE_MULTI_WRITER", "no", "xfs", "branches", "policy", "maxBranchSize", "minFreeSpace",
        "foreign", "mutable"])
def test_what_a_volume_is_not_is_not_confirmed_and_the_message_says_why(driver, request, fields):
    driver.create("v")
    answer = driver.client.ValidateVolumeCapabilities(volume_id="v", **fields)
    assert not answer.HasField("confirmed") and request.node.callspec.id in answer.message, answer.message
    driver.delete("v")


def test_validation_needs_a_volume_and_capabilities(driver):
    driver.create("v")
    validate = driver.client.ValidateVolumeCapabilities
    assert status_of(validate, volume_capabilities=[mount_capability()])[0] == CODE.INVALID_ARGUMENT
    assert status_of(validate, volume_id="v")[0] == CODE.INVALID_ARGUMENT
    assert status_of(validate, volume_id="w", volume_capabilities=[mount_capability()])[0] == CODE.NOT_FOUND
    driver.delete("v")


# -- ListVolumes, ControllerGetVolume, GetCapacity


def test_volumes_are_listed_in_pages_without_gaps_or_repetition(make_driver):
    driver = make_driver("--thin").start()
    names = sorted(f"v{i:02}" for i in range(23))
    for name in names:
        driver.create(name, 32 * MIB)
    seen, token = [], ""
    while True:
        page = driver.client.ListVolumes(max_entries=5, starting_token=token)
        assert len(page.entries) <= 5
        seen += [e.volume.volume_id for e in page.entries]
        token = page.next_token
        if not token:
            break
        if len(seen) == 10:  # the volume that a token names may go meanwhile
            driver.delete(seen[-1])
    assert seen == names
    assert len(driver.client.ListVolumes().entries) == 22
    for name in set(names) - {names[9]}:
        driver.delete(name)


def test_a_foreign_token_is_aborted_and_a_negative_page_invalid(driver):
    assert status_of(driver.client.ListVolumes, starting_token="invalid-token")[0] == CODE.ABORTED
    assert status_of(driver.client.ListVolumes, starting_token="after:../x")[0] == CODE.ABORTED
    assert status_of(driver.client.ListVolumes, max_entries=-1)[0] == CODE.INVALID_ARGUMENT


def test_a_volume_that_does_not_exist_is_not_found(driver):
    assert status_of(driver.client.ControllerGetVolume, volume_id="w")[0] == CODE.NOT_FOUND


@pytest.mark.parametrize("fs", ["ext4", "xfs", "btrfs"])
@pytest.mark.parametrize("branches", [1, 2, 7])
def test_a_volume_of_the_capacity_that_is_reported_can_be_had(make_driver, disk, fs, branches):
    driver = make_driver(pools=[disk("disk-a", 400 * MIB, fs), disk("disk-b", 300 * MIB, fs)]).start()
    answer = driver.client.GetCapacity(parameters={"branches": str(branches)})
    size = answer.maximum_volume_size.value
    assert answer.available_capacity == size
    assert size > 200 * MIB
    assert answer.minimum_volume_size.value == branches * 16 * MIB
    code, text = status_of(driver.create, "v", size + branches * 4096, branches=str(branches))
    assert code == CODE.RESOURCE_EXHAUSTED and re.search(r"has \d+ bytes free, \d+ are needed", text)
    assert driver.branch_files() == []
    driver.create("v", size, branches=str(branches))
    assert driver.client.GetCapacity(parameters={"branches": "2"}).available_capacity < size
    driver.attach("v")
    driver.stage("v")
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def test_a_branch_that_no_file_can_be_is_out_of_range(make_driver, disk):
    driver = make_driver("--thin", pools=[disk("disk-a", 64 * MIB)]).start()
    code, text = status_of(driver.create, "v", 1 << 50, branches="1")
    assert code == CODE.OUT_OF_RANGE and str(1 << 50) in text and "v.0.img" in text


def test_capacity_elsewhere_or_of_what_is_not_supported_is_none(driver):
    key, = driver.client.NodeGetInfo().accessible_topology.segments
    assert driver.client.GetCapacity(
        accessible_topology=csi.Topology(segments={key: "other"})).available_capacity == 0
    assert driver.client.GetCapacity(volume_capabilities=[block_capability()]).available_capacity == 0
    assert driver.client.GetCapacity(volume_capabilities=[mount_capability()]).available_capacity > 0
    assert status_of(driver.client.GetCapacity, parameters={"no": "such"})[0] == CODE.INVALID_ARGUMENT


def test_full_pools_are_resource_exhausted_with_the_numbers_and_nothing_is_left(make_driver, disk):
    driver = make_driver(pools=[disk("disk-a", 100 * MIB), disk("disk-b", 100 * MIB)]).start()
    code, text = status_of(driver.create, "v", 400 * MIB)
    assert code == CODE.RESOURCE_EXHAUSTED
    assert "disk-a" in text and str(201 * MIB) in text  # a branch, and what it takes besides
    assert driver.branch_files() == [] and list((driver.state / "volumes").iterdir()) == []
    driver.create("v", 64 * MIB)
    driver.delete("v")


# -- capabilities


def test_the_capabilities_are_those_that_work(driver):
    rpc = csi.ControllerServiceCapability.RPC
    assert {c.rpc.type for c in driver.client.ControllerGetCapabilities().capabilities} == {
        rpc.CREATE_DELETE_VOLUME, rpc.PUBLISH_UNPUBLISH_VOLUME, rpc.LIST_VOLUMES, rpc.GET_CAPACITY,
        rpc.PUBLISH_READONLY, rpc.LIST_VOLUMES_PUBLISHED_NODES, rpc.GET_VOLUME, rpc.SINGLE_NODE_MULTI_WRITER}


@pytest.mark.parametrize("method", [
    "CreateSnapshot", "DeleteSnapshot", "ListSnapshots", "GetSnapshot", "ControllerExpandVolume",
    "ControllerModifyVolume", "ControllerGetVolumeHealth", "ControllerListVolumeHealth", "NodeExpandVolume",
    "NodeGetVolumeHealth", "NodeGetStorageHealth", "CreateVolumeGroupSnapshot", "GroupControllerGetCapabilities"])
def test_what_is_not_advertised_is_unimplemented(driver, method):
    assert status_of(getattr(driver.client, method))[0] == CODE.UNIMPLEMENTED


def test_a_node_has_no_controller_and_a_controller_no_node(make_driver):
    driver = make_driver("--mode=node").start()
    assert status_of(driver.client.ListVolumes)[0] == CODE.UNIMPLEMENTED
    driver.client.NodeGetInfo()
    driver.stop()
    driver = make_driver("--mode=controller").start()
    assert status_of(driver.client.NodeGetInfo)[0] == CODE.UNIMPLEMENTED
    driver.client.ListVolumes()
