"""make install, uninstall and dist; the service's unit file; the manual pages."""

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


def test_a_source_tarball_builds(work):
    out = make("dist")
    name = re.search(r"(\S+\.tar\.gz)", out)[1]
    with tarfile.open(TOP / "build" / "dist" / name) as tar:
        tar.extractall(work)
    top, = work.iterdir()
    version = (top / "VERSION").read_text().strip()
    assert top.name == f"union-csi-{version}"
    subprocess.run(["sha256sum", "-c", f"{name}.sha256"], cwd=TOP / "build" / "dist", check=True, capture_output=True)
    out = subprocess.run(["make", "-C", str(top), "-pn", "all"], text=True, capture_output=True,
                         env={"PATH": os.environ["PATH"], "GIT_DIR": "/nonexistent"}).stdout
    assert f"VERSION := {version}" in out


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
