"""union-csi volume …: how a user without Kubernetes works."""

import json
import os
import pty
import subprocess
import time

import pytest

from csi_util import MIB, SLOW, UNION_CSI, mounts_below


def run(*args, endpoint=None, **kwargs):
    env = {k: v for k, v in os.environ.items() if k != "CSI_ENDPOINT"}
    if endpoint:
        env["CSI_ENDPOINT"] = endpoint
    return subprocess.run([str(UNION_CSI), "volume", *map(str, args)], text=True, capture_output=True, env=env,
                          timeout=60 * SLOW, **kwargs)


@pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])
def test_a_volume_lives_from_create_to_delete(driver, branches):
    mnt = driver.kubelet / "data"
    out = driver.cli("volume", "create", "v", "--size=64Mi", f"--param=branches={branches}").stdout
    assert "64.00 MiB" in out and str(64 * MIB) in out
    listed = driver.cli("volume", "list").stdout.splitlines()
    assert listed[0].split() == ["ID", "CAPACITY", "NODES"] and listed[1].split()[0] == "v"
    driver.cli("volume", "mount", "v", mnt)
    (mnt / "f").write_text("x")
    assert "test-node" in driver.cli("volume", "show", "v").stdout
    driver.cli("volume", "umount", "v", mnt)
    assert not mnt.exists() and driver.state_of("v")["stage"]["phase"] == "none"
    driver.cli("volume", "mount", "v", mnt, "--read-only")
    assert (mnt / "f").read_text() == "x"
    with pytest.raises(OSError):
        (mnt / "g").write_text("x")
    driver.cli("volume", "umount", "v", mnt)
    driver.cli("volume", "delete", "v")
    assert driver.cli("volume", "list").stdout.count("\n") == 1


def test_json_output_is_json(driver):
    v = json.loads(driver.cli("volume", "create", "v", "--size", "64Mi", "-o", "json", "--param", "branches=1").stdout)
    assert v["id"] == "v" and v["capacity"] == 64 * MIB and v["nodes"] == []
    assert json.loads(driver.cli("volume", "list", "-ojson").stdout) == {"volumes": [v]}
    mnt = driver.kubelet / "data"
    assert json.loads(driver.cli("volume", "mount", "v", mnt, "--output=json").stdout) == {
        "mounted": "v", "directory": str(mnt)}
    assert json.loads(driver.cli("volume", "show", "v", "-o", "json").stdout)["nodes"] == ["test-node"]
    assert json.loads(driver.cli("volume", "umount", "v", mnt, "-o", "json").stdout)["stillInUse"] is False
    assert json.loads(driver.cli("volume", "delete", "v", "-o", "json").stdout) == {"deleted": "v"}
    done = driver.cli("volume", "show", "v", "-o", "json", check=False)
    assert done.returncode == 1 and done.stderr == ""
    assert json.loads(done.stdout)["error"]["status"] == "NOT_FOUND"


def test_two_directories_of_one_volume(driver):
    driver.cli("volume", "create", "v", "--size=64Mi", "--param=branches=1")
    a, b = driver.kubelet / "a", driver.kubelet / "deep" / "er" / "b"
    driver.cli("volume", "mount", "v", a)
    driver.cli("volume", "mount", "v", b)
    (a / "f").write_text("x")
    assert (b / "f").read_text() == "x"
    assert "still in use" in driver.cli("volume", "umount", "v", a).stdout
    assert (b / "f").read_text() == "x"
    assert "still in use" not in driver.cli("volume", "umount", "v", b).stdout
    driver.cli("volume", "delete", "v")


BRANCHES = pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])


def nothing_is_up(driver, volume_id):
    state = driver.state_of(volume_id)
    return state["stage"]["phase"] == "none" and not state["publishes"] and not state["attachments"] and \
        not mounts_below(driver.work)


def what_is_up(driver, volume_id):
    state = driver.state_of(volume_id)
    return state["stage"], [p["target"] for p in state["publishes"] if p["done"]], state["attachments"]


@BRANCHES
@pytest.mark.parametrize("place", ["full", "file", "outside"])
def test_a_mount_that_fails_leaves_the_volume_as_it_was(driver, branches, place):
    where = {"full": driver.kubelet / "full", "file": driver.kubelet / "file",
             "outside": driver.work / "outside" / "t"}[place]
    if place == "file":
        where.write_text("x")
    elif place == "full":
        where.mkdir()
        (where / "x").write_text("")
    driver.cli("volume", "create", "v", "--size=64Mi", f"--param=branches={branches}")
    done = driver.cli("volume", "mount", "v", where, check=False)
    assert done.returncode == 1 and str(where.name) in done.stderr and "undone" not in done.stderr
    assert nothing_is_up(driver, "v")
    driver.cli("volume", "umount", "v", where)  # nothing is to be done
    assert nothing_is_up(driver, "v")
    driver.cli("volume", "delete", "v")


def test_a_second_mount_that_fails_leaves_the_first(driver):
    driver.cli("volume", "create", "v", "--size=64Mi", "--param=branches=1")
    mnt, full = driver.kubelet / "data", driver.kubelet / "full"
    full.mkdir()
    (full / "x").write_text("")
    driver.cli("volume", "mount", "v", mnt)
    before = what_is_up(driver, "v")
    assert driver.cli("volume", "mount", "v", full, check=False).returncode == 1
    assert driver.cli("volume", "mount", "v", driver.kubelet / "b", "--mount-flag=noatime",
                      check=False).returncode == 1  # staged otherwise
    assert what_is_up(driver, "v") == before and os.path.ismount(mnt)
    assert "still in use" in driver.cli("volume", "umount", "v", full).stdout
    assert what_is_up(driver, "v") == before and os.path.ismount(mnt)
    driver.cli("volume", "umount", "v", mnt)
    driver.cli("volume", "delete", "v")


def test_a_mount_that_fails_leaves_what_kubelet_uses(driver):
    volume_id, target = driver.bring_up("v", branches="1")
    before = what_is_up(driver, "v")
    assert driver.cli("volume", "mount", "v", driver.kubelet / "data", check=False).returncode == 1
    assert what_is_up(driver, "v") == before and os.path.ismount(target)
    driver.unpublish("v")
    driver.unstage("v")
    before = what_is_up(driver, "v")  # attached
    assert driver.cli("volume", "mount", "v", driver.work / "outside" / "t", check=False).returncode == 1
    assert what_is_up(driver, "v") == before and before[2]
    driver.detach("v")
    driver.delete(volume_id)


@BRANCHES
def test_a_directory_that_is_unmounted_by_hand_is_released(driver, branches):
    mnt = driver.kubelet / "data"
    driver.cli("volume", "create", "v", "--size=64Mi", f"--param=branches={branches}")
    driver.cli("volume", "mount", "v", mnt)
    subprocess.run(["umount", str(mnt)], check=True)
    (mnt / "mine").write_text("x")
    driver.cli("volume", "umount", "v", mnt)
    assert nothing_is_up(driver, "v") and (mnt / "mine").read_text() == "x"
    driver.cli("volume", "delete", "v")


def test_a_union_is_found_by_its_directory(driver):
    driver.cli("volume", "create", "v", "--size=64Mi")
    mnt = driver.kubelet / "data"
    driver.cli("volume", "mount", "v", mnt, "--mount-flag=noatime")
    os.makedirs(mnt / "d")
    driver.cli("volume", "umount", "data", cwd=driver.kubelet)
    assert not mnt.exists()
    driver.cli("volume", "delete", "v")


def test_a_directory_does_not_tell_which_plain_volume_it_is(driver):
    driver.cli("volume", "create", "v", "--size=64Mi", "--param=branches=1")
    driver.cli("volume", "mount", "v", driver.kubelet / "data")
    done = driver.cli("volume", "umount", driver.kubelet / "data", check=False)
    assert done.returncode == 2 and "umount ID" in done.stderr
    driver.cli("volume", "umount", "v", driver.kubelet / "data")
    driver.cli("volume", "delete", "v")


def test_a_mistyped_volume_is_not_deleted_silently(driver):
    done = driver.cli("volume", "delete", "w", check=False)
    assert done.returncode == 1 and "w" in done.stderr and "NOT_FOUND" in done.stderr


def test_the_drivers_words_reach_the_user(driver):
    done = driver.cli("volume", "create", "v", "--size=64Mi", "--param=brunches=2", check=False)
    assert done.returncode == 1 and "INVALID_ARGUMENT" in done.stderr and "brunches" in done.stderr
    done = driver.cli("volume", "create", "v", "--size=1Ki", check=False)
    assert done.returncode == 1 and "OUT_OF_RANGE" in done.stderr
    done = driver.cli("volume", "mount", "v", "/srv/outside", check=False)
    assert done.returncode == 1


@pytest.mark.parametrize("args,word", [
    ([], "what to do"), (["grow", "v"], "grow"), (["create", "v"], "--size"), (["create"], "create"),
    (["create", "v", "--size=big"], "big"), (["create", "v", "w", "--size=1"], "create"),
    (["create", "v", "--size=1", "--param=x"], "x"), (["list", "--size=1"], "--size"), (["show"], "show"),
    (["list", "-o", "yaml"], "yaml"), (["list", "--timeout=soon"], "soon"), (["list", "--nonsense"], "--nonsense"),
    (["mount", "v", "/x", "--access-mode=MANY"], "MANY"), (["mount", "v"], "mount")])
def test_a_wrong_command_line_is_explained_with_exit_status_2(args, word):
    """Even where no driver runs: who would be asked does not matter."""
    done = run(*args, endpoint="unix:///nobody.sock")
    assert done.returncode == 2 and word in done.stderr, done.stderr


def test_a_volume_that_cannot_be_released_is_a_failure_with_its_reason(driver):
    driver.cli("volume", "create", "v", "--size=64Mi", "--param=branches=1")
    mnt = driver.kubelet / "data"
    driver.cli("volume", "mount", "v", mnt)
    with subprocess.Popen(["unshare", "--mount", "--propagation", "private", "cat"], stdin=subprocess.PIPE) as other:
        while os.readlink(f"/proc/{other.pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt"):
            time.sleep(0.01)
        done = driver.cli("volume", "umount", "v", mnt, check=False)
        assert done.returncode == 1 and "FAILED_PRECONDITION" in done.stderr and "in use" in done.stderr, done
    assert not os.path.ismount(mnt)
    driver.cli("volume", "umount", "v", mnt)
    driver.cli("volume", "delete", "v")


@pytest.mark.parametrize("endpoint", ["foo", "unix:foo", "unix://foo", "tcp://x", "unix:///", "./csi.sock", ""])
def test_an_endpoint_that_the_driver_would_refuse_is_refused(driver, endpoint):
    for done in (run("list", f"--endpoint={endpoint}", cwd=driver.run),
                 subprocess.run([str(UNION_CSI), "volume", "list"], env={**os.environ, "CSI_ENDPOINT": endpoint},
                                cwd=driver.run, text=True, capture_output=True, timeout=60 * SLOW)):
        assert done.returncode == 2 and "CSI_ENDPOINT" in done.stderr and f"`{endpoint}`" in done.stderr, done.stderr


def test_help_is_printed():
    assert "create NAME" in run("--help").stdout


def test_no_driver_is_an_error_that_names_the_socket(work):
    done = run("list", endpoint=f"unix://{work}/nobody.sock")
    assert done.returncode == 1 and "nobody.sock" in done.stderr


def test_a_busy_volume_is_waited_for_and_a_timeout_ends_that(make_driver, work):
    driver = make_driver().start()
    driver.create("v", branches="1")
    lock = subprocess.Popen(["flock", str(driver.state / "volumes" / "v"), "sleep", "3"])
    time.sleep(0.3)
    begin = time.monotonic()
    done = driver.cli("volume", "delete", "v", "--timeout=1", check=False)
    assert done.returncode == 1 and 0.5 < time.monotonic() - begin < 3
    driver.cli("volume", "delete", "v")
    assert time.monotonic() - begin > 1.5
    lock.wait()


def test_progress_is_shown_on_a_terminal_only(driver):
    driver.create("v", branches="1")
    lock = subprocess.Popen(["flock", str(driver.state / "volumes" / "v"), "sleep", "2"])
    time.sleep(0.3)
    main, side = pty.openpty()
    done = subprocess.run([str(UNION_CSI), "volume", f"--endpoint={driver.endpoint}", "delete", "v"], stderr=side,
                          stdout=subprocess.PIPE, text=True, timeout=60)
    os.close(side)
    lock.wait()
    assert done.stdout == "deleted v\n"
    shown = b""
    try:
        while True:
            shown += os.read(main, 65536)
    except OSError:  # EIO: nobody has the other side any more
        pass
    os.close(main)
    assert b"deleting `v`" in shown and shown.endswith(b"\r\x1b[K")  # and it is wiped out
