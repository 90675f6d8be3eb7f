"""Every step of every operation made to fail, or made the driver's last.

A step is a call that changes something outside the process (tests/lib/faultinject.c counts them). For every n
the n-th step of an operation fails, or kills the driver before it; then the operation is tried again and must
end as the first try would have, and everything is given back with nothing left.
"""

import errno
import time

import grpc
import pytest

from csi_util import MIB, SLOW, leftovers, mount_capability
from fault_util import COUNT, FAIL, KILL, Faults

KINDS = pytest.mark.parametrize("branches", ["1", "2"], ids=["plain", "union"])

# What precedes each operation, and what gives back what came of it.
OPERATIONS = {
    "create": lambda d: d.create("v", 32 * MIB * 2, branches=d.branches),
    "attach": lambda d: d.attach("v"),
    "stage": lambda d: d.stage("v", mount_capability(group="4242")),
    "publish": lambda d: d.publish("v"),
    "unpublish": lambda d: d.unpublish("v"),
    "unstage": lambda d: d.unstage("v"),
    "detach": lambda d: d.detach("v"),
    "delete": lambda d: d.delete("v"),
}
NAMES = list(OPERATIONS)
INVERSE = dict(zip(NAMES, ["delete", "detach", "unstage", "unpublish", "publish", "stage", "attach", "create"]))


@pytest.fixture
def faulty(make_driver, work, request):
    faults = Faults(work / "faults")
    driver = make_driver("--workers=1", env=faults.env())
    driver.faults, driver.branches = faults, request.param if hasattr(request, "param") else "1"
    driver.start()
    yield driver
    faults.disarm()


def run(driver, name):
    """Until it is done: start-up's repair may have the volume just then, and that is ABORTED."""
    end = time.monotonic() + 20 * SLOW
    while True:
        try:
            return OPERATIONS[name](driver)
        except grpc.RpcError as e:
            if e.code() != grpc.StatusCode.ABORTED or time.monotonic() > end:
                raise
            time.sleep(0.02)


def run_until(driver, name):
    """All operations before @name, in order."""
    for other in NAMES[:NAMES.index(name)]:
        run(driver, other)


def give_back(driver):
    for name in ("unpublish", "unstage", "detach", "delete"):
        run(driver, name)


def finish(driver, name):
    """The operations after @name, to the end; then nothing may be left."""
    for other in NAMES[NAMES.index(name) + 1:]:
        run(driver, other)
    assert leftovers(driver) == []


def each_step(driver, name, mode, error=errno.EIO):
    """Runs @name with its n-th step failing, for every n; yields after each failure, before the retry."""
    n = 0
    run_until(driver, name)
    while True:
        n += 1
        driver.faults.arm(mode, n, error)
        failure = None
        try:
            OPERATIONS[name](driver)
        except grpc.RpcError as e:
            failure = e
        fired, call = driver.faults.fired, driver.faults.call
        driver.faults.disarm()
        if mode == KILL and fired:
            driver.process.wait()
            driver._gone()
            driver.start()
        yield n, call, failure, fired
        if not fired:
            assert failure is None, f"{name} without a fault: {failure}"
            finish(driver, name)
            return
        run(driver, name)  # the retry
        # And back to where it began; what leaks shows at the end. A volume is formatted only once.
        back = ["unstage", "detach", "delete", "create", "attach"] if name == "stage" else [INVERSE[name]]
        for other in back:
            run(driver, other)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("faulty", ["1", "2"], ids=["plain", "union"], indirect=True)
def test_an_operation_whose_nth_step_fails_is_undone_or_done_and_can_be_retried(faulty, name):
    steps = 0
    for n, call, failure, fired in each_step(faulty, name, FAIL):
        steps += fired
        if failure is not None:
            assert failure.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.FAILED_PRECONDITION,
                                      grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.ABORTED), \
                f"step {n} ({call}) of {name}: {failure}"
            assert failure.details(), f"step {n} ({call}) of {name} says nothing"
        # A failed creation leaves nothing but what its undoing could not remove.
        if name == "create" and failure is not None:
            assert not faulty.client.ListVolumes().entries
    assert steps >= 1


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("faulty", ["1", "2"], ids=["plain", "union"], indirect=True)
def test_a_driver_that_dies_before_the_nth_step_can_be_asked_again(faulty, name):
    steps = 0
    for _, _, _, fired in each_step(faulty, name, KILL):
        steps += fired
    assert steps >= 1


@pytest.mark.parametrize("name", ["create", "stage", "publish"])
@pytest.mark.parametrize("faulty", ["1", "2"], ids=["plain", "union"], indirect=True)
def test_what_a_dead_driver_left_half_done_is_given_back_without_a_retry(faulty, name):
    n = 0
    while True:
        n += 1
        run_until(faulty, name)
        faulty.faults.arm(KILL, n)
        try:
            OPERATIONS[name](faulty)
        except grpc.RpcError:
            pass
        fired = faulty.faults.fired
        faulty.faults.disarm()
        if not fired:
            break
        faulty.process.wait()
        faulty._gone()
        faulty.start()
        give_back(faulty)
        assert leftovers(faulty) == []
    give_back(faulty)


def test_steps_are_counted_at_all(faulty):
    """The others prove nothing if the library is not there."""
    faulty.faults.arm(COUNT)
    faulty.create("v", branches="1")
    for call in ("fallocate", "renameat", "fsync"):
        assert any(step.startswith(call) for step in faulty.faults.log), faulty.faults.log
    faulty.faults.disarm()
    faulty.delete("v")
