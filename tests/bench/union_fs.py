# SPDX-License-Identifier: Apache-2.0
"""The union filesystem's figures: ratios to one ext4 filesystem and to mergerfs, turn by turn in one run."""

import json
import os
import shutil
import statistics
import subprocess

from csi_util import MIB
from unionfs_util import UNION_FS

ROUNDS = 3
SECONDS = 1

# Name, unit, and what fio is asked for.
STREAMS = [
    ("write 1 MiB", ["--rw=write", "--bs=1M"]),
    ("read 1 MiB", ["--rw=read", "--bs=1M"]),
    ("random write 4 KiB", ["--rw=randwrite", "--bs=4k"]),
    ("random read 4 KiB", ["--rw=randread", "--bs=4k"]),
]
FILES = [("create files", "filecreate"), ("stat files", "filestat"), ("remove files", "filedelete")]
N_FILES = 10000


def run(*args):
    r = subprocess.run([str(a) for a in args], capture_output=True, text=True)
    if r.returncode:
        raise RuntimeError(f"{' '.join(map(str, args))}: {r.stdout[-2000:]}{r.stderr[-2000:]}")
    return r


def fio(top, *args):
    out = run("fio", "--name=job", f"--directory={top}", "--output-format=json", "--thread", *args).stdout
    job = json.loads(out[out.index("{"):])["jobs"][0]
    assert job["error"] == 0, job
    return job


def stream(top, args):
    """MB/s from and to the page cache, or a disk would be measured; the file is there before the clock starts."""
    job = fio(top, "--filename=stream", f"--size={256 * MIB}", "--ioengine=psync", "--time_based", f"--runtime={SECONDS}",
              "--overwrite=1", "--invalidate=0", "--fallocate=none", *args)
    return sum(job[k]["bw_bytes"] for k in ("read", "write")) / 1e6


def files(top, engine):
    """Thousands of files per second."""
    (top / "files").mkdir(exist_ok=True)
    job = fio(top / "files", f"--ioengine={engine}", f"--nrfiles={N_FILES}", "--filesize=4k", "--openfiles=1", "--bs=4k",
              "--create_on_open=1", "--filename_format=f$filenum")
    done = [job[k] for k in ("read", "write", "trim") if job[k]["total_ios"]]
    assert sum(d["total_ios"] for d in done) == N_FILES, engine
    return 1e6 / done[0]["clat_ns"]["mean"]


class Tree:
    """One thing to be measured: a name and a mounted directory."""

    def __init__(self, work, name, mount):
        self.name, self.top, self.disks = name, work / name, []
        self.work, self.process = work, None
        self.top.mkdir()
        mount(self)

    def disk(self):
        """A new ext4 filesystem of 1 GiB in memory, so that no disk's noise is measured."""
        i = len(self.disks)
        image, point = self.work / f"{self.name}.{i}.img", self.work / f"{self.name}.{i}"
        with open(image, "wb") as f:
            f.truncate(1024 * MIB)
        run("mkfs.ext4", "-q", "-F", "-m", "0", image)
        point.mkdir()
        run("mount", "-o", "loop", image, point)
        self.disks.append(point)
        return point

    def close(self):
        run("umount", self.top)
        if self.process:
            self.process.wait(30)
        for p in self.disks:
            run("umount", p)


def native(t):
    run("mount", "--bind", t.disk(), t.top)


def ours(t):
    branches = ":".join(str(t.disk()) for _ in range(2))
    run(UNION_FS, "-o", "category.create=mfs", branches, t.top)


def peer(t):
    branches = ":".join(str(t.disk()) for _ in range(2))
    run("mergerfs", "-o", "category.create=mfs,minfreespace=0,cache.files=auto-full,dropcacheonclose=false", branches, t.top)


def measure(trees):
    """Medians over rounds in which each tree has its turn."""
    found = {}
    for i in range(ROUNDS):
        for t in trees[i % len(trees):] + trees[:i % len(trees)]:
            for what, args in STREAMS:
                found.setdefault((what, "MB/s"), {}).setdefault(t.name, []).append(stream(t.top, args))
            for what, engine in FILES:
                found.setdefault((what, "1000/s"), {}).setdefault(t.name, []).append(files(t.top, engine))
            shutil.rmtree(t.top / "files")
            os.unlink(t.top / "stream")
    return {k: {n: statistics.median(v) for n, v in by.items()} for k, by in found.items()}


def bench(work, row):
    kinds = [("native", native), ("union-fs", ours)]
    if shutil.which("mergerfs"):
        kinds.append(("mergerfs", peer))
    trees = []
    try:
        for name, mount in kinds:
            trees.append(Tree(work, name, mount))
        for (what, unit), by in measure(trees).items():
            text = f"{by['union-fs']:.3g}" if by["union-fs"] < 100 else f"{by['union-fs']:.0f}"
            text += f" {unit}, {by['union-fs'] / by['native']:.2f} of ext4"
            if "mergerfs" in by:
                text += f", {by['union-fs'] / by['mergerfs']:.2f} of mergerfs"
            row(f"union-fs: {what}", text, "")
    finally:
        for t in trees:
            t.close()
