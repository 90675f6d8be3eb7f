"""make install, uninstall and dist; the service's unit file; the manual pages."""

import fcntl
import os
import pathlib
import re
import subprocess
import tarfile

from csi_util import TOP, UNION_CSI, UNION_FS


def make(*args, **kwargs):
    env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "SAN", "WERROR")}
    return subprocess.run(["make", "--no-print-directory", "-C", str(TOP), *args], text=True, capture_output=True,
                          check=True, env=env, timeout=600, **kwargs).stdout


def tree(root):
    return sorted(str(p.relative_to(root)) for p in pathlib.Path(root).rglob("*") if not p.is_dir())


def test_installation_and_its_removal(work):
    make("install", f"DESTDIR={work}", "PREFIX=/usr")
    assert tree(work) == ["usr/bin/gogomergerfs", "usr/bin/union-csi", "usr/bin/union-fs",
                          "usr/lib/systemd/system/union-csi.service", "usr/share/man/man8/union-csi.8",
                          "usr/share/man/man8/union-fs.8"]
    assert os.readlink(work / "usr/bin/gogomergerfs") == "union-fs"
    unit = (work / "usr/lib/systemd/system/union-csi.service").read_text()
    assert "/usr/bin/union-csi " in unit and "/usr/local" not in unit and "KillMode=process" in unit
    subprocess.run([str(work / "usr/bin/union-csi"), "--version"], check=True)
    make("uninstall", f"DESTDIR={work}", "PREFIX=/usr")
    assert tree(work) == []


def test_the_unit_file_is_clean(work):
    make("install", f"DESTDIR={work}", f"PREFIX={work}/usr")
    unit = work / f"{work}/usr/lib/systemd/system/union-csi.service".lstrip("/")
    text = unit.read_text().replace(f"{work}/usr/bin/", f"{work}{work}/usr/bin/")
    copy = work / "union-csi.service"
    copy.write_text(text)
    done = subprocess.run(["systemd-analyze", "verify", "--man=no", str(copy)], text=True, capture_output=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def unpack_dist(work):
    """The source tree of a tarball, and its name."""
    with open(TOP / "build" / "dist.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other tests make the same file
        name = re.search(r"(\S+\.tar\.gz)", make("dist"))[1]
        with tarfile.open(TOP / "build" / "dist" / name) as tar:
            tar.extractall(work)
    return work / name.removesuffix(".tar.gz"), name


def test_a_source_tarball_builds(work):
    top, name = unpack_dist(work)
    version = (top / "VERSION").read_text().strip()
    assert top.name == f"union-csi-{version}"
    subprocess.run(["sha256sum", "-c", f"{name}.sha256"], cwd=TOP / "build" / "dist", check=True, capture_output=True)
    out = subprocess.run(["make", "-C", str(top), "-pn", "all"], text=True, capture_output=True,
                         env={"PATH": os.environ["PATH"], "GIT_DIR": "/nonexistent"}).stdout
    assert f"VERSION := {version}" in out


def test_a_source_tarball_within_another_repository_keeps_its_version(work):
    subprocess.run(["git", "init", "-q", str(work)], check=True)
    subprocess.run(["git", "-C", str(work), "-c", "user.name=x", "-c", "user.email=x@x", "commit", "-q", "--allow-empty",
                    "-m", "x"], check=True)
    top, _ = unpack_dist(work)
    version = (top / "VERSION").read_text().strip()
    out = subprocess.run(["make", "-C", str(top), "-pn", "all"], text=True, capture_output=True).stdout
    assert f"VERSION := {version}" in out
    done = subprocess.run(["make", "-C", str(top), "dist"], text=True, capture_output=True)
    assert done.returncode == 2 and "not a clone of the repository" in done.stderr, done
    assert not (top / "build" / "dist").exists()


def test_a_user_is_told_one_command_that_installs_everything(work):
    top, _ = unpack_dist(work)
    bin_ = work / "bin"
    bin_.mkdir()
    for name, script in ("id", "echo 1000"), ("dpkg-query", "exit 1"):
        (bin_ / name).write_text(f"#!/bin/sh\n{script}\n")
        (bin_ / name).chmod(0o755)
    done = subprocess.run(["make", "-C", str(top), "deps"], text=True, capture_output=True,
                          env={"PATH": f"{bin_}:{os.environ['PATH']}"})
    commands = [line for line in done.stdout.splitlines() if "apt-get" in line]
    assert done.returncode == 2 and len(commands) == 1, done
    assert {"gcc", "python3-grpcio", "clang-tidy", "mergerfs"} <= set(commands[0].split())


def test_the_manuals_are_well_formed_and_name_every_option():
    for program, page in ((UNION_CSI, "union-csi.8"), (UNION_FS, "union-fs.8")):
        path = TOP / "docs" / "man" / page
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", str(path)], text=True, capture_output=True,
                              env={**os.environ, "MANWIDTH": "200", "MAN_KEEP_FORMATTING": ""})
        assert done.returncode == 0 and done.stderr == ""
        options = set(re.findall(r"--[a-z][a-z-]+", subprocess.run([str(program), "--help"], text=True,
                                                                  capture_output=True).stdout))
        missing = {o for o in options if o not in done.stdout.replace("\u2010", "-")}
        assert not missing, f"{page} lacks {missing}"


def test_help_lists_every_target():
    out = make("help")
    for target in "all deps demo test test-unit test-blackbox conformance lint hdr-check fmt bench install uninstall " \
                  "dist clean help".split():
        assert re.search(rf"^{target} ", out, re.M), target
