"""Sums a JUnit report of csi-sanity up: what ran, and for each skip the capability that the driver does not advertise."""

import collections
import re
import sys
import xml.etree.ElementTree as ET

# By the reasons that csi-sanity gives.  One that is not here is a failure: somebody has to say what is missing.
CAPABILITIES = {
    "ControllerExpandVolume": "controller EXPAND_VOLUME",
    "ControllerGetVolumeHealth": "controller GET_VOLUME_HEALTH",
    "ControllerListVolumeHealth": "controller LIST_VOLUME_HEALTH",
    "ControllerModifyVolume": "controller MODIFY_VOLUME",
    "Modify Volume": "controller MODIFY_VOLUME",
    "Modify volume": "controller MODIFY_VOLUME",
    "CreateSnapshot": "controller CREATE_DELETE_SNAPSHOT",
    "DeleteSnapshot": "controller CREATE_DELETE_SNAPSHOT",
    "Snapshot": "controller CREATE_DELETE_SNAPSHOT",
    "GetSnapshot": "controller GET_SNAPSHOT",
    "ListSnapshots": "controller LIST_SNAPSHOTS",
    "Volume Cloning": "controller CLONE_VOLUME",
    "GroupControllerService": "plugin GROUP_CONTROLLER_SERVICE",
    "NodeExpandVolume": "node EXPAND_VOLUME",
    "NodeGetStorageHealth": "node GET_STORAGE_HEALTH",
    "NodeGetVolumeHealth": "node GET_VOLUME_HEALTH",
    "testnodevolumeattachlimit": "none, but a limit: NodeGetInfo has no max_volumes_per_node",
}

ran, skips, failed = 0, collections.Counter(), []
for case in ET.parse(sys.argv[1]).getroot().iter("testcase"):
    if not case.get("name", "").startswith("[It]"):
        continue
    skipped = case.find("skipped")
    if skipped is not None:
        reason = skipped.get("message") or skipped.text or ""
        if reason == "pending":  # not a test yet
            continue
        reason = re.sub(r"^skipped - | not (supported|enabled)$", "", reason.strip().splitlines()[0])
        if reason in CAPABILITIES:
            skips[CAPABILITIES[reason]] += 1
        else:
            failed.append(f"{case.get('name')}: skipped without a capability: {reason}")
        continue
    ran += 1
    if case.find("failure") is not None or case.find("error") is not None:
        failed.append(case.get("name"))

total = ran + sum(skips.values())
print("Skipped, by the capability that is not advertised:")
for capability, n in sorted(skips.items()):
    print(f"  {n:3} {capability}")
print(f"Ran {ran} of {total}, skipped {sum(skips.values())}, failed {len(failed)}")
for name in failed:
    print(f"  FAILED: {name}")
sys.exit(bool(failed) or ran == 0)
