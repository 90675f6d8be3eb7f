"""Sums a JUnit report of csi-sanity up: what ran, and of each skip why."""

import collections
import re
import sys
import xml.etree.ElementTree as ET

ran, skips, failed = 0, collections.Counter(), []
for case in ET.parse(sys.argv[1]).getroot().iter("testcase"):
    if not case.get("name", "").startswith("[It]"):
        continue
    skipped = case.find("skipped")
    if skipped is not None:
        reason = skipped.get("message") or skipped.text or ""
        if reason == "pending":  # not a test yet
            continue
        skips[re.sub(r"^skipped - ", "", reason).strip().splitlines()[0]] += 1
        continue
    ran += 1
    if case.find("failure") is not None or case.find("error") is not None:
        failed.append(case.get("name"))

total = ran + sum(skips.values())
print(f"Ran {ran} of {total}, skipped {sum(skips.values())}, failed {len(failed)}")
for reason, n in sorted(skips.items()):
    print(f"  skipped {n:3}: {reason}")
for name in failed:
    print(f"  FAILED: {name}")
sys.exit(bool(failed) or ran == 0)
