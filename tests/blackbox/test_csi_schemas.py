"""Every JSON that is written or printed is what its schema in schemas/ says."""

import json
import pathlib

import jsonschema
import pytest

from csi_util import MODE, TOP, mount_capability

SCHEMAS = {p.stem: json.loads(p.read_text()) for p in (TOP / "schemas").glob("*.json")}


def validate(name, document):
    jsonschema.Draft202012Validator(SCHEMAS[name]).validate(document)


def validate_file(name, path):
    validate(name, json.loads(pathlib.Path(path).read_text()))


@pytest.mark.parametrize("name", sorted(SCHEMAS))
def test_a_schema_is_one(name):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[name])


def test_states_pools_and_branches_are_written_by_their_schemas(driver):
    validate_file("pools", driver.state / "pools.json")
    for p in driver.pools:
        validate_file("pool", p / ".union-csi-pool")
    capability = mount_capability(MODE.SINGLE_NODE_MULTI_WRITER, flags=["noatime"], group="77")
    driver.create('odd "name"\u00e9', branches="1")
    odd, = (d.name for d in (driver.state / "volumes").iterdir())
    steps = [lambda: driver.create("v", capability=capability, policy="epmfs", maxBranchSize="40Mi"),
             lambda: driver.attach("v", capability), lambda: driver.stage("v", capability),
             lambda: driver.publish("v", capability=capability),
             lambda: driver.publish("v", "second", capability=capability, readonly=True),
             lambda: driver.unpublish("v"), lambda: driver.unpublish("v", "second"), lambda: driver.unstage("v"),
             lambda: driver.detach("v")]
    for step in steps:
        step()
        validate("state", driver.state_of("v"))
    for p in driver.pools:
        for sidecar in p.glob("*.json"):
            validate_file("branch", sidecar)
    driver.delete("v")
    driver.delete(odd)


def test_what_the_command_line_prints_is_by_its_schema(driver):
    def cli(*args, check=True):
        document = json.loads(driver.cli("volume", *args, "-o", "json", check=check).stdout)
        validate("cli", document)
        return document

    mnt = driver.kubelet / "data"
    cli("list")
    cli("create", "v", "--size=64Mi")
    cli("list")
    cli("mount", "v", mnt)
    assert cli("show", "v", mnt)["usage"]["bytes"]["total"] > 0
    cli("show", "nothing", check=False)
    cli("create", "v", "--size=1Gi", check=False)
    cli("umount", mnt)
    cli("delete", "v")
    cli("list", "--timeout=0", check=False)


def test_what_recover_prints_is_by_its_schema(make_driver):
    driver = make_driver().start()
    driver.create("whole")
    driver.create("broken")
    driver.stop()
    args = ["recover", f"--pool={driver.pools[0]},{driver.pools[1]}", "-o", "json"]
    aside = driver.work / "aside"
    (driver.pools[0] / "broken.0.img").rename(aside)
    document = json.loads(driver.cli(*args, f"--state-dir={driver.work}/other", check=False).stdout)
    validate("cli", document)
    assert {v["id"]: "problem" in v for v in document["volumes"]} == {"whole": False, "broken": True}
    aside.rename(driver.pools[0] / "broken.0.img")
    state = driver.state / "volumes" / "whole" / "state.json"
    good = state.read_text()
    state.write_text("{")
    document = json.loads(driver.cli(*args, f"--state-dir={driver.state}").stdout)
    validate("cli", document)
    assert "damage" in document["volumes"][0]
    state.write_text(good)
    driver.start()
    driver.delete("whole")
    driver.delete("broken")
    uuid = json.loads((driver.pools[0] / ".union-csi-pool").read_text())["uuid"]
    validate("cli", json.loads(driver.cli("recover", f"--state-dir={driver.state}", f"--forget-pool={uuid}",
                                          "-o", "json").stdout))
