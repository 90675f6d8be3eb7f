"""Two calls for one volume, calls that are given up, calls that hang, and many volumes at once."""

import concurrent.futures
import fcntl
import os
import random
import subprocess
import threading
import time

import grpc
import pytest

from csi_util import MIB, SLOW, UNION_FS, Client, leftovers, mount_capability, status_of

CODE = grpc.StatusCode


@pytest.fixture
def gate(work):
    """A mkfs.ext4 that waits for us: bind-mounted over the real one, in the tests' own mount namespace."""

    class Gate:
        script, real = work / "gate.sh", work / "mkfs.ext4"
        log, fifo = work / "mkfs.log", work / "fifo"

        def runs(self):
            return self.log.read_text().count("run\n") if self.log.exists() else 0

        def wait_for_run(self, n=1):
            end = time.monotonic() + 20 * SLOW
            while self.runs() < n:
                assert time.monotonic() < end, "mkfs was not called"
                time.sleep(0.01)

        def open(self):
            with open(self.fifo, "w") as f:
                f.write("go\n")

    g = Gate()
    tool = os.path.realpath("/sbin/mkfs.ext4")
    # One gate at a time: each would take the other's away.
    lock = open(work.parent.parent / "gate.lock", "w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    subprocess.run(["cp", tool, str(g.real)], check=True)
    os.mkfifo(g.fifo)
    g.script.write_text(f"""#!/bin/sh
for device; do :; done
case $(losetup -n -O BACK-FILE "$device") in
{work}/*) echo run >>{g.log}; read line <{g.fifo} ;;  # other tests may run meanwhile
esac
exec {g.real} "$@"
""")
    g.script.chmod(0o755)
    subprocess.run(["mount", "--bind", str(g.script), tool], check=True)
    yield g
    subprocess.run(["umount", "-l", tool], check=True)
    lock.close()


def stage_later(driver, volume_id="v", timeout=None):
    path = driver.staging(volume_id)
    path.mkdir(parents=True, exist_ok=True)
    return driver.client.future("NodeStageVolume", timeout=timeout, volume_id=volume_id,
                                staging_target_path=str(path), volume_capability=mount_capability())


def test_a_second_call_on_a_busy_volume_is_aborted_with_what_runs_and_since_when(driver, gate):
    driver.create("v", branches="1")
    driver.attach("v")
    first = stage_later(driver)
    gate.wait_for_run()
    for call in (driver.unstage, driver.delete, driver.detach, driver.stage):
        code, text = status_of(call, "v")
        assert code == CODE.ABORTED
        assert "NodeStageVolume" in text and "format branch" in text and " s" in text, text
    driver.create("other", branches="1")  # other volumes are not concerned
    driver.delete("other")
    gate.open()
    first.result()
    assert gate.runs() == 1
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


@pytest.mark.parametrize("give_up", ["deadline", "cancel"])
def test_work_goes_on_when_its_caller_gives_up_and_the_retry_joins_it(driver, gate, give_up):
    driver.create("v", branches="1")
    driver.attach("v")
    call = stage_later(driver, timeout=1 if give_up == "deadline" else None)
    gate.wait_for_run()
    if give_up == "cancel":
        call.cancel()
    else:
        assert call.exception().code() == CODE.DEADLINE_EXCEEDED
    end = time.monotonic() + 10
    while True:  # until the server has noticed, the volume is busy
        retry = stage_later(driver)
        time.sleep(0.2)
        if not (retry.done() and retry.exception() and retry.exception().code() == CODE.ABORTED):
            break
        assert time.monotonic() < end
    assert not retry.done()
    code, text = status_of(driver.unstage, "v")
    assert code == CODE.ABORTED
    gate.open()
    retry.result()
    assert gate.runs() == 1
    driver.publish("v")
    driver.take_down("v")


def test_a_client_that_disconnects_costs_nothing(driver, gate):
    driver.create("v", branches="1")
    driver.attach("v")
    other = Client(driver.socket)
    path = driver.staging("v")
    path.mkdir(parents=True)
    other.future("NodeStageVolume", volume_id="v", staging_target_path=str(path),
                 volume_capability=mount_capability())
    gate.wait_for_run()
    other.close()
    gate.open()
    end = time.monotonic() + 20 * SLOW
    while driver.state_of("v")["stage"]["phase"] != "staged":
        assert time.monotonic() < end
        time.sleep(0.05)
    driver.publish("v")
    driver.take_down("v")


def test_an_operation_that_hangs_gives_its_volume_up_and_does_no_harm_when_it_wakes(make_driver, work):
    fifo, runs, program = work / "fifo", work / "runs", work / "union-fs"
    os.mkfifo(fifo)
    program.write_text(f'#!/bin/sh\necho run >>{runs}\nread line <{fifo}\nexec {UNION_FS} "$@"\n')
    program.chmod(0o755)

    def wake():
        with open(fifo, "w") as f:
            f.write("go\n")

    driver = make_driver("--hang-timeout=1", "--workers=2", f"--union-fs={program}").start()
    driver.create("v")
    driver.attach("v")
    hung = stage_later(driver)
    end = time.monotonic() + 20 * SLOW
    while True:
        try:
            assert time.monotonic() < end
            driver.unstage("v")
            if runs.exists():
                break
        except grpc.RpcError as e:
            assert e.code() in (CODE.ABORTED, CODE.FAILED_PRECONDITION), e
        time.sleep(0.1)
    for _ in range(4):  # the workers that are left, and their replacements, still serve
        driver.client.Probe()
    wake()
    with pytest.raises(grpc.RpcError):
        hung.result()
    time.sleep(0.3)
    assert driver.state_of("v")["stage"]["phase"] == "none"
    threading.Thread(target=wake).start()
    driver.stage("v")
    driver.publish("v")
    driver.take_down("v")


# -- stopping while something runs


@pytest.fixture
def abrupt(make_driver):
    """A driver that may end while its threads run, which ThreadSanitizer takes for a leak."""
    options = os.environ.get("TSAN_OPTIONS", "")
    return make_driver(env={"TSAN_OPTIONS": f"{options}:report_thread_leaks=0"}).start()


def test_what_runs_at_the_end_has_its_grace_and_no_more(abrupt, gate):
    driver = abrupt
    driver.create("v", branches="1")
    driver.attach("v")
    call = stage_later(driver)
    gate.wait_for_run()
    begin = time.monotonic()
    driver.process.terminate()
    assert driver.process.wait(25 * SLOW) == 0
    assert time.monotonic() - begin > 9
    assert call.exception().code() in (CODE.UNAVAILABLE, CODE.CANCELLED)
    log = driver.log.read_text()
    assert "NodeStageVolume has been running for" in log and "format branch" in log, log[-2000:]
    driver._gone()
    gate.open()
    driver.start()
    opener = threading.Thread(target=gate.open)  # the retry ends where the first try would have
    opener.start()
    driver.stage("v")
    opener.join()
    driver.publish("v")
    driver.take_down("v")


def test_what_ends_within_the_grace_is_answered(driver, gate):
    driver.create("v", branches="1")
    driver.attach("v")
    call = stage_later(driver)
    gate.wait_for_run()
    driver.process.terminate()
    time.sleep(1)
    gate.open()
    call.result()
    assert driver.process.wait(8 * SLOW) == 0
    driver._gone()
    driver.start()
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def test_work_whose_caller_has_gone_has_its_grace_as_well(driver, gate):
    driver.create("v", branches="1")
    driver.attach("v")
    stage_later(driver)
    gate.wait_for_run()
    driver.client.close()
    driver.process.terminate()
    time.sleep(1)
    assert driver.process.poll() is None
    gate.open()
    assert driver.process.wait(8 * SLOW) == 0
    assert driver.state_of("v")["stage"]["phase"] == "staged"
    driver._gone()
    driver.start()
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


def test_a_second_signal_ends_it_at_once(abrupt, gate):
    driver = abrupt
    driver.create("v", branches="1")
    driver.attach("v")
    stage_later(driver)
    gate.wait_for_run()
    driver.process.terminate()
    time.sleep(0.5)
    driver.process.terminate()
    assert driver.process.wait(2 * SLOW) == 1
    driver._gone()
    gate.open()
    driver.start()
    driver.unstage("v")
    driver.detach("v")
    driver.delete("v")


# -- many volumes


def test_200_volumes_in_parallel(make_driver):
    count = 200 if SLOW == 1 else 20
    driver = make_driver("--thin").start()
    errors = []

    def life(i):
        name = f"v{i:03}"
        branches = "2" if i % 4 == 0 else "1"
        for attempt in range(3):
            try:
                volume_id, target = driver.bring_up(name, 64 * MIB, branches=branches)
                (target / "f").write_text(name)
                assert (target / "f").read_text() == name
                return
            except grpc.RpcError as e:
                if e.code() not in (CODE.ABORTED, CODE.RESOURCE_EXHAUSTED):
                    errors.append(e)
                    return

    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(life, range(count)))
    assert not errors, errors[0]
    assert len(driver.client.ListVolumes().entries) == count
    for i in range(count):
        assert (driver.target(f"v{i:03}") / "f").read_text() == f"v{i:03}"
    with concurrent.futures.ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda i: driver.take_down(f"v{i:03}"), range(count)))
    assert leftovers(driver) == []


def test_a_driver_that_is_killed_again_and_again_loses_and_leaks_nothing(make_driver):
    """Workers live volumes' lives while the driver dies at random points; what it acknowledged holds."""
    seed = int(os.environ.get("SEED", time.time()))
    print(f"SEED={seed}")
    rng = random.Random(seed)
    driver = make_driver().start()
    stop = threading.Event()
    lock, problems = threading.Lock(), []

    def persist(call, *args):
        """As a CO: again and again until it is done."""
        end = time.monotonic() + 60 * SLOW
        while True:
            try:
                client = driver.client
                if client is None:
                    raise ValueError("restarting")
                return call(*args)
            except (grpc.RpcError, ValueError, AttributeError) as e:
                if time.monotonic() > end:
                    raise AssertionError(f"{call} {args}: {e}") from e
                if isinstance(e, grpc.RpcError) and e.code() in (CODE.INVALID_ARGUMENT, CODE.ALREADY_EXISTS,
                                                                 CODE.NOT_FOUND, CODE.OUT_OF_RANGE):
                    raise AssertionError(f"{call} {args}: {e}") from e
                time.sleep(0.05)

    def life(i):
        n = 0
        try:
            while not stop.is_set():
                n += 1
                name = f"w{i}-{n}"
                persist(lambda: driver.create(name, branches=str(1 + i % 3), size=96 * MIB))
                persist(driver.attach, name)
                persist(driver.stage, name)
                target = persist(driver.publish, name)
                (target / "f").write_text(name)
                persist(driver.unpublish, name)
                if n % 2:
                    persist(driver.unstage, name)
                    persist(driver.stage, name)
                target = persist(driver.publish, name)
                assert (target / "f").read_text() == name
                for step in (driver.unpublish, driver.unstage, driver.detach, driver.delete):
                    persist(step, name)
        except Exception as e:
            with lock:
                problems.append(e)

    threads = [threading.Thread(target=life, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for _ in range(25 if SLOW == 1 else 8):
        time.sleep(rng.uniform(0.02, 0.4))
        process = driver.process
        driver.client = None
        process.kill()
        process.wait()
        driver.process = None
        driver.start()
    stop.set()
    for t in threads:
        t.join()
    assert not problems, problems[0]
    assert leftovers(driver) == []
