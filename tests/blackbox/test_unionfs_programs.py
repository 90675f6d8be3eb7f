"""Programs that people use, on a union, with what they check themselves."""

import concurrent.futures
import json
import os
import shutil
import sqlite3
import subprocess
import threading

import pytest

from unionfs_util import *  # noqa: F403  (fixtures)
from unionfs_util import (ACL_GROUP_OBJ, ACL_MASK, ACL_OTHER, ACL_USER, ACL_USER_OBJ, IS_ASAN, IS_TSAN, KIB, MIB, SLOW,
                          TOP, acl, assert_same_tree, fsync_dir, read, run, write)

GIT = ["git", "-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "safe.directory=*",
       "-c", "protocol.file.allow=always", "-c", "gc.auto=0"]
SOURCES = os.environ.get("UNIONFS_SOURCES", str(TOP))


@pytest.fixture
def union(make_union, passthrough):
    return make_union(3, size=200 * MIB, passthrough=passthrough)


def git(where, *args):
    env = {k: v for k, v in os.environ.items() if not k.startswith("GIT_")}
    return run(*GIT, *args, cwd=where, env=env).stdout.decode()


def copy_sources(to):
    """This project, as git knows it, or all that is there where it is no repository."""
    try:
        names = [n for n in git(SOURCES, "ls-files", "-z").split("\0") if n and os.path.isfile(f"{SOURCES}/{n}")]
    except subprocess.CalledProcessError:
        names = [str(p.relative_to(SOURCES)) for d in ("lib", "union-fs", "csi", "proto", "schemas", "docs", "tests")
                 for p in TOP.joinpath(d).rglob("*") if p.is_file()] + ["Makefile"]
    for n in names:
        os.makedirs(os.path.dirname(f"{to}/{n}"), exist_ok=True)
        shutil.copy2(f"{SOURCES}/{n}", f"{to}/{n}")
    return names


def spread(union, top):
    """On how many branches there are files of a tree."""
    return len({i for i, b in enumerate(union.branches) for _, _, files in os.walk(b / top) if files})


# ----------------------------------------------------------------------------------------- git

def test_git_keeps_a_repository(union):
    repo = union.path / "repo"
    repo.mkdir()
    names = copy_sources(repo)
    git(repo, "init", "-q", "-b", "main")
    git(repo, "add", "-A", "-f")
    git(repo, "commit", "-q", "-m", "first")
    assert git(repo, "status", "--porcelain") == ""
    git(repo, "checkout", "-q", "-b", "other")
    for n in names[::7]:
        git_name = repo / n
        write(git_name, read(git_name) + b"\nchanged\n")
    git(repo, "mv", names[0], "moved")
    git(repo, "rm", "-q", "-f", names[1])
    git(repo, "commit", "-q", "-a", "-m", "second")
    for branch in ("main", "other", "main"):
        git(repo, "checkout", "-q", branch)
        assert git(repo, "status", "--porcelain") == ""
    for n in names:
        assert read(repo / n) == read(os.path.join(SOURCES, n)), n
    git(repo, "merge", "-q", "other")
    git(repo, "gc", "-q", "--prune=now")
    assert "error" not in git(repo, "fsck", "--full", "--strict")
    git(union.path, "clone", "-q", "--no-hardlinks", "repo", "clone")
    git(union.path, "clone", "-q", "--bare", "repo", "bare")
    assert git(union.path / "clone", "rev-parse", "HEAD") == git(repo, "rev-parse", "HEAD")
    git(union.path / "clone", "fsck", "--full")
    assert spread(union, "repo") == 3


def test_git_copies_this_projects_own_repository(union):
    if not os.path.isdir(os.path.join(SOURCES, ".git")):
        pytest.skip("the sources are no git repository")
    git(union.path, "clone", "-q", "--no-hardlinks", SOURCES, "clone")
    clone = union.path / "clone"
    git(clone, "fsck", "--full")
    git(clone, "repack", "-q", "-a", "-d")
    git(clone, "gc", "-q")
    git(clone, "worktree", "add", "-q", "../tree", "HEAD~1")
    assert git(union.path / "tree", "status", "--porcelain") == ""
    assert git(clone, "rev-parse", "HEAD") == git(SOURCES, "rev-parse", "HEAD")


# ---------------------------------------------------------------------------------- a compiler

def test_this_project_is_built_in_a_union(union):
    """A part of it: one program's objects, an archive, dependency files."""
    tree = union.path / "src"
    tree.mkdir()
    copy_sources(tree)
    objects = [f"build/plain/lib/base/{n}.o" for n in ("buf", "err", "log", "sha256", "size", "str", "uuid")]
    objects += [f"build/plain/union-fs/{n}.o" for n in ("lower", "objmap", "policy")]
    make = ["make", "-C", tree, "-j2", "CFLAGS=-O0 -g", *objects]
    env = {k: v for k, v in os.environ.items() if not k.startswith("MAKE") and k not in ("SAN", "BIN", "V")}
    run(*make, env=env)
    for o in objects:
        assert run("file", "-b", tree / o).stdout.startswith(b"ELF 64-bit LSB relocatable") if shutil.which("file") \
            else read(tree / o)[:4] == b"\x7fELF"
    assert b"CC " not in run(*make, env=env).stdout
    os.utime(tree / "lib/base/buf.c")
    again = run(*make, env=env).stdout
    assert again.count(b"CC ") == 1 and b"lib/base/buf.c" in again
    run("ar", "rcs", tree / "lib.a", *(tree / o for o in objects))
    write(tree / "main.c", b"extern const char *uc_buf_str(const void *); int main(void) { return uc_buf_str ? 7 : 0; }\n")
    run("gcc", "-o", tree / "main", tree / "main.c", tree / "lib.a")
    assert run(tree / "main", check=False).returncode == 7


# -------------------------------------------------------------------------------- tar and rsync

def make_odd_tree(top):
    """One of everything."""
    os.makedirs(f"{top}/d/e")
    for i in range(200):
        write(f"{top}/d/f{i}", bytes([i]) * (i * 100))
    os.link(f"{top}/d/f1", f"{top}/d/e/linked")
    os.symlink("../d/f2", f"{top}/link")
    os.mkfifo(f"{top}/fifo", 0o640)
    os.mknod(f"{top}/null", 0o20666, os.makedev(1, 3))
    os.chmod(f"{top}/d/f3", 0o4755)
    os.chown(f"{top}/d/f4", 1000, 50)
    os.chmod(f"{top}/d/e", 0o3770)
    os.setxattr(f"{top}/d/f5", "user.test", b"value")
    os.setxattr(f"{top}/d", "user.test", b"of a directory")
    os.setxattr(f"{top}/d/f6", "system.posix_acl_access",
                acl((ACL_USER_OBJ, 6, -1), (ACL_USER, 4, 1000), (ACL_GROUP_OBJ, 4, -1), (ACL_MASK, 4, -1), (ACL_OTHER, 0, -1)))
    with open(f"{top}/sparse", "wb") as f:
        f.seek(5 * MIB)
        f.write(b"end")
    write(f"{top}/name \n\t é \udcff", b"odd name")
    for p in ("d/f7", "d/e", "d", "."):
        os.utime(f"{top}/{p}", ns=(10 ** 18, 10 ** 18 + 7))


TAR = ["tar", "--xattrs", "--xattrs-include=*", "--acls", "--numeric-owner", "-S"]


def test_tar_takes_and_gives_back_everything(area, union):
    plain = area.dir("plain")
    make_odd_tree(plain)
    run(*TAR, "-C", plain, "-cf", area.path / "1.tar", ".")
    (union.path / "t").mkdir()
    run(*TAR, "-C", union.path / "t", "-xpf", area.path / "1.tar")
    assert_same_tree(plain, union.path / "t", "extracted")
    run(*TAR, "-C", union.path / "t", "-df", area.path / "1.tar")
    run(*TAR, "-C", union.path / "t", "-cf", union.path / "2.tar", ".")
    back = area.dir("back")
    run(*TAR, "-C", back, "-xpf", union.path / "2.tar")
    assert_same_tree(plain, back, "and back")
    assert os.stat(union.path / "t/sparse").st_blocks * 512 < MIB
    assert spread(union, "t") == 3


def test_rsync_has_nothing_to_do_the_second_time(area, union):
    plain = area.dir("plain")
    make_odd_tree(plain)
    rsync = ["rsync", "-aHAXS", "--numeric-ids", "--delete", "--itemize-changes"]
    assert run(*rsync, f"{plain}/", union.path / "r").stdout
    assert_same_tree(plain, union.path / "r", "copied")
    assert run(*rsync, f"{plain}/", union.path / "r").stdout == b""
    assert run(*rsync, "--checksum", f"{plain}/", union.path / "r").stdout == b""
    assert run(*rsync, f"{union.path}/r/", area.path / "back").stdout
    assert_same_tree(plain, area.path / "back", "and back")
    write(plain / "d/f9", b"changed")
    os.rename(plain / "d/e", plain / "moved")
    run(*rsync, "--delay-updates", f"{plain}/", union.path / "r")
    assert_same_tree(plain, union.path / "r", "brought up to date")
    assert run(*rsync, f"{plain}/", union.path / "r").stdout == b""


def test_cp_and_mv_and_rm_do_what_they_do(area, union):
    make_odd_tree(union.path / "a")
    run("cp", "-a", "--reflink=auto", union.path / "a", union.path / "b")
    assert_same_tree(union.path / "a", union.path / "b", "cp -a")
    run("mv", union.path / "b", union.path / "a/d/b")
    run("mv", union.path / "a/d/b", area.path / "out")
    assert_same_tree(union.path / "a", area.path / "out", "mv to another filesystem")
    run("diff", "-r", "--no-dereference", "-x", "null", "-x", "fifo", union.path / "a", area.path / "out")
    run("find", union.path / "a", "-type", "f", "-name", "f1*", "-delete")
    assert not any(n.startswith("f1") for n in os.listdir(union.path / "a/d"))
    run("rm", "-r", union.path / "a")
    assert os.listdir(union.path) == []
    assert all(os.listdir(b) == [] for b in union.branches)


# ------------------------------------------------------------------------------------ databases

def transfer(path, n, seed):
    """A process: moves money between accounts, whose sum must stay what it is."""
    code = f"""
import random, sqlite3
r, db = random.Random({seed}), sqlite3.connect({str(path)!r}, timeout=60, isolation_level=None)
for i in range({n}):
    a, b, x = r.randrange(100), r.randrange(100), r.randrange(10)
    db.execute("BEGIN IMMEDIATE")
    db.execute("UPDATE account SET money = money - ? WHERE id = ?", (x, a))
    db.execute("UPDATE account SET money = money + ? WHERE id = ?", (x, b))
    db.execute("INSERT INTO log VALUES (?, ?, ?, ?)", ({seed}, a, b, x))
    db.execute("COMMIT" if i % 7 else "ROLLBACK")
db.close()
"""
    return subprocess.Popen(["/usr/bin/python3", "-c", code])


@pytest.mark.parametrize("journal", ["DELETE", "WAL", "TRUNCATE", "PERSIST"])
def test_sqlite_is_consistent_with_two_processes(union, journal):
    path, n = union.path / "bank.db", 150 // SLOW
    db = sqlite3.connect(path)
    assert db.execute(f"PRAGMA journal_mode={journal}").fetchone()[0].upper() == journal
    db.execute("CREATE TABLE account (id INTEGER PRIMARY KEY, money INTEGER)")
    db.execute("CREATE TABLE log (who, a, b, x)")
    db.executemany("INSERT INTO account VALUES (?, 1000)", [(i,) for i in range(100)])
    db.commit()
    processes = [transfer(path, n, seed) for seed in (1, 2)]
    while any(p.poll() is None for p in processes):
        assert db.execute("SELECT sum(money) FROM account").fetchone() == (100000,)
    assert [p.wait() for p in processes] == [0, 0]
    assert db.execute("SELECT count(*) FROM log").fetchone() == (2 * sum(i % 7 != 0 for i in range(n)),)
    db.execute("VACUUM")
    assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()
    assert run("sqlite3", path, "PRAGMA integrity_check; SELECT sum(money) FROM account").stdout == b"ok\n100000\n"


def test_sqlite_recovers_when_its_process_is_killed(union):
    path = union.path / "bank.db"
    for journal in ("DELETE", "WAL"):
        db = sqlite3.connect(path)
        db.execute(f"PRAGMA journal_mode={journal}")
        db.executescript("DROP TABLE IF EXISTS account; DROP TABLE IF EXISTS log;"
                         "CREATE TABLE account (id INTEGER PRIMARY KEY, money INTEGER); CREATE TABLE log (who, a, b, x)")
        db.executemany("INSERT INTO account VALUES (?, 1000)", [(i,) for i in range(100)])
        db.commit()
        db.close()
        for seed in range(4):
            p = transfer(path, 10 ** 6, seed)
            threading.Event().wait(0.25 * SLOW)
            p.kill()
            p.wait()
            result = run("sqlite3", path, "PRAGMA integrity_check; SELECT sum(money) FROM account").stdout
            assert result == b"ok\n100000\n"


def test_a_databases_way_to_replace_a_file_leaves_no_gap(union):
    """Write a temporary file, fsync it, rename it, fsync the directory; who reads sees one or the other."""
    d, seen, end = union.path / "d", set(), threading.Event()
    for b in union.branches:
        (b / "d").mkdir()
    write(d / "CURRENT", b"0" * 5000)

    def look():
        while not end.is_set():
            data = read(d / "CURRENT")
            assert len(data) == 5000 and data == data[:5] * 1000
            seen.add(data[:5])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(look) for _ in range(2)]
        try:
            for i in range(1, 200):
                fd = os.open(d / "tmp", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
                os.write(fd, (b"%04d|" % i) * 1000)
                os.fsync(fd)
                os.close(fd)
                os.rename(d / "tmp", d / "CURRENT")
                fsync_dir(d)
        finally:
            end.set()
        for r in readers:
            r.result()
    assert len(seen) > 5
    assert read(d / "CURRENT")[:5] == b"0199|" and os.listdir(d) == ["CURRENT"]
    assert len(union.where("d/CURRENT")) == 1


# ------------------------------------------------------------------------------------------ fio

@pytest.mark.parametrize("engine,direct", [("psync", 0), ("psync", 1), ("mmap", 0), ("libaio", 1), ("io_uring", 1)])
def test_fio_reads_what_it_wrote(union, engine, direct):
    r = run("fio", "--name=verify", "--verify_state_save=0", f"--directory={union.path}", f"--ioengine={engine}", f"--direct={direct}",
            "--rw=randwrite", "--bs=4k", f"--size={(2 if IS_ASAN or IS_TSAN else 8) * MIB}", "--numjobs=2", "--iodepth=8",
            "--verify=crc32c", "--do_verify=1", "--verify_fatal=1", "--fallocate=none", "--end_fsync=1", "--group_reporting",
            "--output-format=json", check=False)
    if r.returncode and b"engine" in r.stderr + r.stdout and b"not" in r.stderr + r.stdout:
        pytest.skip(f"fio has no {engine}")
    assert r.returncode == 0, r.stderr + r.stdout
    text = r.stdout.decode()
    job = json.loads(text[text.index("{"):])["jobs"][0]
    assert job["error"] == 0 and job["read"]["io_bytes"] == job["write"]["io_bytes"] > 0


def test_dd_and_checksums_agree(area, union):
    write(area.path / "data", os.urandom(3 * MIB + 17))
    expected = run("sha256sum", area.path / "data").stdout.split()[0]
    for i, options in enumerate((["bs=1M"], ["bs=4k", "oflag=append", "conv=notrunc"], ["bs=64k", "conv=fsync"],
                                 ["bs=4k", "oflag=sync", "count=800"], [f"bs={511}", "oflag=nonblock"])):
        run("dd", f"if={area.path / 'data'}", f"of={union.path / f'f{i}'}", *options)
        assert run("sha256sum", union.path / f"f{i}").stdout.split()[0] == expected
    assert os.stat(union.path / "f0").st_size == 3 * MIB + 17 and KIB
