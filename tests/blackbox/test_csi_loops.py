# SPDX-License-Identifier: Apache-2.0
"""Loop devices that others look at: a device that is detached meanwhile lives until they close it."""

import os
import subprocess
import threading

from csi_util import loops_below


def losetup(*args):
    return subprocess.run(["losetup", *map(str, args)], text=True, capture_output=True, check=True).stdout.strip()


def test_device_that_is_about_to_vanish_is_kept(driver):
    volume_id = driver.create("v", branches="1").volume_id
    driver.attach(volume_id)
    [image] = driver.branch_files("v")
    device = losetup("--find", "--show", image)
    fd = os.open(device, os.O_RDONLY)
    losetup("--detach", device)
    driver.stage(volume_id)
    os.close(fd)
    assert loops_below(driver.work) == [device]
    target = driver.publish(volume_id)
    (target / "f").write_text("data")
    driver.take_down(volume_id)


def test_unstaging_waits_for_who_looks_at_a_device(driver):
    volume_id, _ = driver.bring_up("v", branches="1")
    driver.unpublish(volume_id)
    [device] = loops_below(driver.work)
    fd = os.open(device, os.O_RDONLY)
    threading.Timer(0.5, os.close, [fd]).start()
    driver.unstage(volume_id)
    assert loops_below(driver.work) == []
    driver.detach(volume_id)
    driver.delete(volume_id)
