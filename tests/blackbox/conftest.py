"""Fixtures of the black-box tests: they run as root, in a private mount namespace (see the Makefile)."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

# The union's tests fork, and the driver's leave threads of gRPC behind: newer ones would wait for these for ever.
os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "build" / "gen" / "python"))


def pytest_configure(config):
    config.addinivalue_line("markers", "vm: also run by `make test-vm`, on another kernel than this machine's")
    if os.geteuid() != 0:
        pytest.exit("the black-box tests mount filesystems: run them as root", returncode=1)


@pytest.fixture
def work(tmp_path_factory):
    """A directory of the test's own; whatever it leaves there is taken away."""
    from csi_util import clean_up

    path = tmp_path_factory.mktemp("uc")
    yield path
    clean_up(path)
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_driver(work):
    """Makes drivers that are stopped at the end; each must have left nothing."""
    from csi_util import Driver, leftovers

    drivers = []

    def make(*args, **kwargs):
        driver = Driver(work, args=args, **kwargs)
        drivers.append(driver)
        return driver

    yield make
    for driver in drivers:
        driver.stop()
        assert leftovers(driver) == []


@pytest.fixture
def driver(make_driver):
    """A driver that serves, on two pools; all volumes must be deleted when the test ends."""
    return make_driver().start()


@pytest.fixture
def disk(work):
    """Makes small disks: images with a filesystem, loop-mounted at a directory."""
    from disk_util import mount_image

    def make(name, size, fs="ext4", mount=True):
        image, point = work / f"{name}.img", work / name
        with open(image, "wb") as f:
            f.truncate(size)
        options = {"ext4": ["-q", "-m", "0"], "xfs": ["-q"], "btrfs": ["-q"]}[fs]
        subprocess.run([f"mkfs.{fs}", *options, str(image)], check=True, capture_output=True)
        point.mkdir()
        if mount:
            mount_image(image, point)
        return point

    return make
