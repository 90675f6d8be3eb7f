# SPDX-License-Identifier: Apache-2.0
"""make bench: the driver's figures, as a table. Nothing here is a test: it fails only if something does not work."""

import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "build" / "gen" / "python"), str(TOP / "tests" / "blackbox")]

import union_fs  # noqa: E402
from csi_util import MIB, UNION_CSI, Driver, clean_up, leftovers  # noqa: E402

CLIENT = TOP / "build" / "plain" / "tests" / "bench" / "client"
rows = []


def row(what, value, unit, goal=""):
    rows.append((what, value, unit, goal))


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p / 100))]


def resident(pid):
    """Resident memory in MB, and how much of it is the process' own."""
    text = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text()
    kb = {k: int(v) for k, v in re.findall(r"^(\w+): +(\d+) kB", text, re.M)}
    return kb["Rss"] / 1000, (kb["Private_Dirty"] + kb["Private_Clean"]) / 1000


def libraries(pid):
    """Files that are mapped: the binary's size and that of all libraries, in MB."""
    files = {line.split()[5] for line in open(f"/proc/{pid}/maps") if len(line.split()) > 5 and "r-xp" in line}
    files = {f for f in files if f.startswith("/") and f != str(UNION_CSI)}
    return sum(os.stat(f).st_size for f in files) / 1e6, len(files)


def timed(driver, *args):
    out = subprocess.run([str(CLIENT), str(driver.socket), *map(str, args)], text=True, capture_output=True, check=True)
    times = {}
    for line in out.stdout.splitlines():
        us, name = line.split()
        times.setdefault(name, []).append(float(us) / 1000)
    return times


def start_to_ready(driver):
    """Milliseconds from exec to the first answer to a Probe."""
    times = []
    for _ in range(20):
        begin = time.monotonic()
        process = subprocess.Popen(driver.command(), stderr=subprocess.DEVNULL)
        while subprocess.run([str(CLIENT), str(driver.socket), "probe", "1"], capture_output=True).returncode:
            pass
        times.append((time.monotonic() - begin) * 1000)
        process.terminate()
        process.wait()
    return statistics.median(times)


def bench(work):
    driver = Driver(work)
    driver.command = lambda *extra: [a for a in Driver.command(driver, *extra) if a != "-v"]
    row("start to first answer", f"{start_to_ready(driver):.1f}", "ms", "≤ 50")

    driver.start()
    time.sleep(0.5)
    before = resident(driver.process.pid)
    row("resident memory after start", f"{before[0]:.2f} (private {before[1]:.2f})", "MB", "≤ 6")

    begin = time.monotonic()
    volume_id, target = driver.bring_up("bench", 256 * MIB)
    (target / "first").write_bytes(b"x")
    row("create to first byte (union of 2, ext4, 256 MiB)", f"{(time.monotonic() - begin) * 1000:.0f}", "ms")

    times = {}
    for calls in ("10,000", "20,000"):
        begin = time.monotonic()
        times |= timed(driver, "probe", 9000)
        rate = 9000 / (time.monotonic() - begin)
        times |= timed(driver, "publish", 500, volume_id, driver.staging(volume_id), driver.target(volume_id, "p"))
        rss, private = resident(driver.process.pid)
        row(f"resident memory after {calls} RPCs", f"{rss:.2f} (private {private:.2f})", "MB", "no growth")
    row("Probe", f"{rate:.0f}", "1/s")
    row("Probe p50 / p99", f"{percentile(times['Probe'], 50):.3f} / {percentile(times['Probe'], 99):.3f}", "ms")
    for name in ("NodePublishVolume", "NodeUnpublishVolume"):
        row(f"{name} p50 / p99, union staged",
            f"{percentile(times[name], 50):.2f} / {percentile(times[name], 99):.2f}", "ms", "p99 ≤ 20")
    driver.take_down(volume_id)

    mb, n = libraries(driver.process.pid)
    stripped = work / "stripped"
    subprocess.run(["strip", "-o", str(stripped), str(UNION_CSI)], check=True)
    row("binary, stripped", f"{stripped.stat().st_size / 1e6:.2f}", "MB")
    row(f"its {n} libraries", f"{mb:.2f}", "MB")
    driver.stop()
    assert leftovers(driver) == []


def main():
    work = pathlib.Path(tempfile.mkdtemp(prefix="bench", dir=TOP / "build"))
    memory = pathlib.Path(tempfile.mkdtemp(prefix="union-bench-", dir="/dev/shm"))
    try:
        bench(work)
        union_fs.bench(memory, row)
    finally:
        clean_up(work)
        shutil.rmtree(work, ignore_errors=True)
        shutil.rmtree(memory, ignore_errors=True)
    widths = [max(len(r[i]) for r in rows) for i in range(3)]
    for what, value, unit, goal in rows:
        print(f"{what:<{widths[0]}}  {value:>{widths[1]}} {unit:<{widths[2]}}  {'goal ' + goal if goal else ''}".rstrip())


main()
