"""CSI's Identity service."""

import csi_pb2 as csi

from csi_util import status_of  # noqa: F401


def test_plugin_info_names_the_driver_and_its_version(driver):
    info = driver.client.GetPluginInfo()
    assert info.name == "union.csi.union.io"
    assert info.vendor_version


def test_plugin_capabilities_are_those_of_a_controller_with_topology(driver):
    kinds = {c.service.type for c in driver.client.GetPluginCapabilities().capabilities}
    service = csi.PluginCapability.Service
    assert kinds == {service.CONTROLLER_SERVICE, service.VOLUME_ACCESSIBILITY_CONSTRAINTS}


def test_every_mode_reports_the_same_plugin_capabilities(make_driver):
    answers = set()
    for mode in ("controller", "node", "all"):
        driver = make_driver(f"--mode={mode}").start()
        answers.add(driver.client.GetPluginCapabilities().SerializeToString())
        driver.stop()
    assert len(answers) == 1


def test_probe_is_ready_when_the_pools_are_there(driver):
    assert driver.client.Probe().ready.value is True
