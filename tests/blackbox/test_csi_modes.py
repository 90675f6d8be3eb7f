"""The controller and the node as two processes, on one state directory."""

import os
import threading

import grpc
import pytest

from csi_util import MIB, mount_capability, mounts_below, servers, status_of

CODE = grpc.StatusCode
BRANCHES = pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])


@pytest.fixture
def halves(make_driver):
    """(controller, node), each with a socket and a log of its own."""

    def make(mode):
        driver = make_driver(f"--mode={mode}")
        driver.socket = driver.run / f"{mode}.sock"
        driver.log = driver.work / f"{mode}.log"
        return driver.start()

    return make("controller"), make("node")


def test_each_half_serves_its_own_service_only(halves):
    controller, node = halves
    for half, own, other in ((controller, "ControllerGetCapabilities", "NodeGetCapabilities"),
                             (node, "NodeGetCapabilities", "ControllerGetCapabilities")):
        getattr(half.client, own)()
        assert status_of(getattr(half.client, other))[0] == CODE.UNIMPLEMENTED
        assert half.client.Probe().ready.value
    capabilities = [half.client.GetPluginCapabilities() for half in halves]  # of the plugin, not of the process
    assert capabilities[0] == capabilities[1]


@BRANCHES
def test_a_volume_lives_from_create_to_delete(halves, branches):
    controller, node = halves
    volume_id = controller.create("v", 64 * MIB, branches=branches).volume_id
    controller.attach(volume_id)
    node.stage(volume_id)
    target = node.publish(volume_id)
    (target / "f").write_text("x")
    usage = node.client.NodeGetVolumeStats(volume_id=volume_id, volume_path=str(target)).usage
    assert usage[0].total > 32 * MIB

    assert status_of(controller.detach, volume_id)[0] == CODE.FAILED_PRECONDITION
    assert status_of(controller.delete, volume_id)[0] == CODE.FAILED_PRECONDITION
    assert controller.client.ListVolumes().entries[0].status.published_node_ids == ["test-node"]
    assert (target / "f").read_text() == "x"

    node.unpublish(volume_id)
    node.unstage(volume_id)
    assert mounts_below(node.kubelet) == [] and servers(node.work) == []
    controller.detach(volume_id)
    controller.delete(volume_id)
    assert not controller.client.ListVolumes().entries


@BRANCHES
def test_neither_halfs_death_costs_the_volume(halves, branches):
    controller, node = halves
    volume_id = controller.create("v", 64 * MIB, branches=branches).volume_id
    controller.restart()
    controller.attach(volume_id)
    node.restart()
    node.stage(volume_id)
    target = node.publish(volume_id)
    (target / "f").write_text("x")
    with open(target / "g", "w") as open_file:
        before = node.state_of(volume_id), servers(node.work), mounts_below(node.work)
        controller.restart()  # it is not the controller's to repair
        node.restart()
        assert (node.state_of(volume_id), servers(node.work), mounts_below(node.work)) == before
        open_file.write("y")
    assert (target / "f").read_text() == "x" and (target / "g").read_text() == "y"
    node.unpublish(volume_id)
    controller.restart()
    node.unstage(volume_id)
    node.restart()
    controller.detach(volume_id)
    controller.delete(volume_id)


def retried(call, *args):
    """As a CO does: ABORTED says that the other half is at it."""
    while True:
        try:
            return call(*args)
        except grpc.RpcError as e:
            if e.code() != CODE.ABORTED:
                raise


def test_both_halves_at_one_volume_lose_nothing_of_each_other(halves):
    controller, node = halves
    volume_id = controller.create("v", 64 * MIB, branches="1").volume_id
    controller.attach(volume_id)
    stop, failures = threading.Event(), []

    def keep_attaching():
        while not stop.is_set():
            try:
                retried(controller.attach, volume_id)
                controller.client.ValidateVolumeCapabilities(volume_id=volume_id,
                                                             volume_capabilities=[mount_capability()])
            except grpc.RpcError as e:
                failures.append(e)

    thread = threading.Thread(target=keep_attaching)
    thread.start()
    try:
        for i in range(20):
            retried(node.stage, volume_id)
            target = retried(node.publish, volume_id)
            (target / str(i)).write_text("x")
            assert sorted(map(int, (n for n in os.listdir(target) if n != "lost+found"))) == list(range(i + 1))
            retried(node.unpublish, volume_id)
            retried(node.unstage, volume_id)
    finally:
        stop.set()
        thread.join()
    assert failures == []
    state = node.state_of(volume_id)
    assert len(state["attachments"]) == 1 and state["publishes"] == [] and state["stage"]["phase"] == "none"
    controller.detach(volume_id)
    controller.delete(volume_id)
