"""What a node's operator and kubelet see of the driver beside CSI: HTTP, registration, sockets, signals, options."""

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import time

import grpc
import pytest

import pluginregistration_pb2 as registration
from csi_util import SLOW, TOP, UNION_CSI, leftovers, servers


@pytest.fixture
def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def get(port, path, method="GET"):
    c = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    c.request(method, path)
    r = c.getresponse()
    return r.status, r.read().decode(), dict(r.getheaders())


# -- HTTP


def test_health_and_readiness_are_served(make_driver, port):
    driver = make_driver(f"--http-endpoint=127.0.0.1:{port}").start()
    assert get(port, "/healthz")[0] == 200
    end = time.monotonic() + 5 * SLOW
    while get(port, "/readyz")[0] != 200:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert get(port, "/nothing")[0] == 404
    assert get(port, "/healthz", "POST")[0] == 405


def test_a_driver_with_a_missing_pool_is_alive_but_not_ready(make_driver, port):
    driver = make_driver(f"--http-endpoint=127.0.0.1:{port}")
    (driver.pools[0] / "precious").write_text("x")
    driver.start()
    time.sleep(0.2)
    assert get(port, "/healthz")[0] == 200
    status, text, _ = get(port, "/readyz")
    assert status == 503 and "not ready" in text
    (driver.pools[0] / "precious").unlink()


def test_metrics_are_prometheus_text_and_count(make_driver, port):
    driver = make_driver(f"--http-endpoint=127.0.0.1:{port}").start()
    driver.bring_up("v", branches="1")
    with pytest.raises(grpc.RpcError):
        driver.create("")
    status, text, headers = get(port, "/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    samples, types = {}, {}
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split()
            assert name not in types
            types[name] = kind
        elif not line.startswith("#"):
            m = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})? (-?[0-9.e+-]+)', line)
            assert m, line
            assert m[1] + (m[2] or "") not in samples
            samples[m[1] + (m[2] or "")] = float(m[3])
            assert any(m[1] in (t, f"{t}_bucket", f"{t}_sum", f"{t}_count") for t in types), line
    page = (TOP / "docs/man/union-csi.8").read_text()
    for name, kind in types.items():
        assert name.startswith("process_") or f".It Li {name} Ta {kind} Ta" in page, f"{name} is not in the manual"
    labels = 'service="csi.v1.Controller",method="CreateVolume",code='
    assert samples[f'union_csi_rpcs_total{{{labels}"OK"}}'] == 1
    assert samples[f'union_csi_rpcs_total{{{labels}"INVALID_ARGUMENT"}}'] == 1
    name = f'union_csi_rpc_duration_seconds_bucket{{{labels}"OK",le="'
    buckets = [v for k, v in samples.items() if k.startswith(name)]
    assert buckets == sorted(buckets) and buckets[-1] == 1
    assert samples['union_csi_volumes{state="ready"}'] == 1
    assert samples["union_csi_staged_volumes"] == 1 and samples["union_csi_published_targets"] == 1
    assert 1e6 < samples["process_resident_memory_bytes"] < 1e9
    driver.take_down("v")
    text = get(port, "/metrics")[1]
    assert 'union_csi_volumes{state="ready"} 0' in text and "union_csi_staged_volumes 0" in text


def test_metrics_know_the_volumes_of_before(make_driver, port):
    driver = make_driver(f"--http-endpoint=127.0.0.1:{port}").start()
    driver.bring_up("v", branches="1")
    driver.restart()
    end = time.monotonic() + 5 * SLOW
    while "union_csi_staged_volumes 1" not in get(port, "/metrics")[1]:
        assert time.monotonic() < end
        time.sleep(0.05)
    driver.take_down("v")


def test_http_is_off_by_default(driver):
    out = subprocess.run(["ss", "-ltnp"], text=True, capture_output=True).stdout
    assert f"pid={driver.process.pid}," not in out


# -- kubelet's registration


def register(path, ok=True, error=""):
    channel = grpc.insecure_channel(f"unix://{path}")
    info = channel.unary_unary("/pluginregistration.Registration/GetInfo",
                               request_serializer=registration.InfoRequest.SerializeToString,
                               response_deserializer=registration.PluginInfo.FromString)(
        registration.InfoRequest(), timeout=10)
    channel.unary_unary("/pluginregistration.Registration/NotifyRegistrationStatus",
                        request_serializer=registration.RegistrationStatus.SerializeToString,
                        response_deserializer=registration.RegistrationStatusResponse.FromString)(
        registration.RegistrationStatus(plugin_registered=ok, error=error), timeout=10)
    channel.close()
    return info


def test_kubelet_finds_the_plugin_and_registers_it(make_driver, work, port):
    (work / "reg").mkdir()
    driver = make_driver("--kubelet-registration-path=/var/lib/kubelet/plugins/union/csi.sock",
                         f"--plugin-registration-dir={work}/reg", "--driver-name=lower.union.io",
                         f"--http-endpoint=127.0.0.1:{port}").start()
    path = work / "reg" / "lower.union.io-reg.sock"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert get(port, "/readyz")[0] == 503
    info = register(path)
    assert (info.type, info.name, info.endpoint, list(info.supported_versions)) == (
        "CSIPlugin", "lower.union.io", "/var/lib/kubelet/plugins/union/csi.sock", ["1.0.0"])
    assert get(port, "/readyz")[0] == 200
    driver.stop()
    assert not path.exists()


def test_a_plugin_that_kubelet_refuses_ends_and_says_why(make_driver, work):
    (work / "reg").mkdir()
    driver = make_driver("--kubelet-registration-path=/csi.sock", f"--plugin-registration-dir={work}/reg").start()
    register(work / "reg" / "union.csi.union.io-reg.sock", ok=False, error="version\nmismatch")
    assert driver.process.wait(timeout=20 * SLOW) == 1
    driver._gone()
    log = driver.log.read_text()
    assert "kubelet refuses the plugin: version\\x0amismatch" in log


def test_there_is_no_registration_unless_it_is_asked_for(driver):
    assert not list(driver.work.rglob("*-reg.sock"))


# -- the socket


def test_the_socket_is_for_root_only_and_goes_with_the_driver(make_driver):
    driver = make_driver().start()
    assert stat.S_IMODE(driver.socket.stat().st_mode) == 0o600
    driver.stop()
    assert not driver.socket.exists()


def test_the_sockets_directory_is_made(make_driver, work):
    driver = make_driver()
    driver.run.rmdir()
    driver.start()
    assert stat.S_IMODE(driver.run.stat().st_mode) == 0o700


def test_a_second_driver_on_the_same_socket_is_refused_and_the_first_goes_on(driver):
    second = subprocess.run(driver.command(f"--state-dir={driver.work}/state2"), capture_output=True, text=True,
                            timeout=30)
    assert second.returncode == 1 and str(driver.socket) in second.stderr
    driver.client.Probe()
    assert driver.socket.exists()


def test_a_stale_socket_is_replaced(driver):
    driver.kill()
    assert driver.socket.exists()
    driver.start()


def test_a_socket_that_is_not_ours_any_more_is_left(make_driver):
    driver = make_driver().start()
    driver.socket.unlink()
    other = socket.socket(socket.AF_UNIX)
    other.bind(str(driver.socket))
    driver.stop()
    assert driver.socket.exists()
    other.close()
    driver.socket.unlink()


# -- signals, service manager, log


def test_the_service_manager_is_told_when_it_serves_and_when_it_ends(make_driver, work):
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(work / "notify"))
    notify.settimeout(20)
    driver = make_driver(env={"NOTIFY_SOCKET": str(work / "notify")})
    driver.start(wait=False)
    assert notify.recv(100) == b"READY=1"
    driver.client.Probe()  # at once, without waiting
    driver.stop()
    assert notify.recv(100) == b"STOPPING=1"


@pytest.mark.parametrize("sig", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(make_driver, sig):
    driver = make_driver().start()
    driver.process.send_signal(sig)
    assert driver.process.wait(timeout=20 * SLOW) == 0
    driver._gone()


def test_volumes_work_on_without_the_driver_and_it_finds_them_again(driver):
    volume_id, target = driver.bring_up("v", branches="2")
    (target / "f").write_text("before")
    before = servers(driver.work)
    driver.kill()
    (target / "g").write_text("between")
    assert (target / "f").read_text() == "before"
    driver.start()
    assert servers(driver.work) == before
    assert driver.client.NodeGetVolumeStats(volume_id="v", volume_path=str(target)).usage
    second = driver.publish("v", "second")
    assert (second / "g").read_text() == "between"
    driver.take_down("v", names=("t", "second"))


def test_json_logs_are_json_lines_without_secrets(make_driver, work):
    driver = make_driver("--log-format=json").start()
    import csi_pb2 as csi
    from csi_util import mount_capability
    request = csi.CreateVolumeRequest(name='quote"\u00e9', capacity_range={"required_bytes": 1},
                                      volume_capabilities=[mount_capability()],
                                      secrets={"password": "hunter2hunter2"})
    with pytest.raises(grpc.RpcError):
        driver.client.CreateVolume(request)
    driver.stop()
    lines = [json.loads(line) for line in driver.log.read_text().splitlines()]
    assert all({"time", "level", "msg"} == set(line) for line in lines)
    assert "hunter2" not in driver.log.read_text()


def test_a_refused_call_is_logged_with_the_volume_it_is_for(driver):
    for call in (lambda: driver.create("claim-1", brunches="2"),
                 lambda: driver.client.ListVolumes(starting_token="no-token")):
        with pytest.raises(grpc.RpcError):
            call()
    log = driver.log.read_text()
    assert "CreateVolume of volume `claim-1`: INVALID_ARGUMENT: " in log and "ListVolumes: ABORTED: " in log, log


# -- options


def run(*args, **env):
    return subprocess.run([str(UNION_CSI), *args], text=True, capture_output=True, timeout=30,
                          env={**{k: v for k, v in os.environ.items() if k not in ("CSI_ENDPOINT", "NODE_NAME")},
                               **env})


@pytest.mark.parametrize("args,word", [
    (["--mode=both"], "both"), (["--endpoint=tcp://1.2.3.4:5"], "tcp://1.2.3.4:5"), (["--endpoint=unix://x"], "unix://x"),
    (["--backend=cloud"], "cloud"), (["--pool="], "pool"), (["--pool=a,,b"], "a,,b"), (["--no-such"], "--no-such"),
    (["--workers=0"], "workers"), (["--workers=many"], "many"), (["--hang-timeout=0"], "hang-timeout"),
    (["--log-format=xml"], "xml"), (["--state-dir=relative"], "relative"), (["--driver-name=a/b"], "a/b"),
    (["--node-id=" + "n" * 64], "node-id"), (["--node-id=a b"], "a b"), (["stray"], "stray"), (["--mode"], "--mode")])
def test_a_wrong_option_is_named_and_nothing_is_started(args, word):
    done = run(*args)
    assert done.returncode == 2 and word in done.stderr and not done.stdout


def test_a_wrong_endpoint_in_the_environment_is_named():
    done = run("--pool=/tmp", CSI_ENDPOINT="tcp://x")
    assert done.returncode == 2 and "CSI_ENDPOINT" in done.stderr


def test_without_pools_it_says_what_is_missing(work):
    done = run(f"--state-dir={work}/state", f"--endpoint=unix://{work}/s")
    assert done.returncode == 2 and "--pool" in done.stderr


def test_help_and_version_are_printed():
    done = run("--help")
    assert done.returncode == 0
    for option in ("--mode", "--endpoint", "--backend", "--pool", "--thin", "--state-dir", "--node-id", "--driver-name",
                   "--kubelet-dir", "--log-format", "--http-endpoint", "--kubelet-registration-path",
                   "--plugin-registration-dir"):
        assert option in done.stdout
    assert run("--version").stdout.startswith("union-csi ")


def test_the_environment_names_endpoint_and_node(make_driver, work):
    driver = make_driver(env={"NODE_NAME": "from-env", "CSI_ENDPOINT": f"unix://{work}/run/csi.sock"})
    plain = driver.command
    driver.command = lambda *extra: [a for a in plain(*extra) if not a.startswith(("--endpoint", "--node-id"))]
    driver.start()
    assert driver.client.NodeGetInfo().node_id == "from-env"


def test_stopping_is_quick(make_driver):
    driver = make_driver().start()
    begin = time.monotonic()
    driver.stop()
    assert time.monotonic() - begin < 5 * SLOW
    assert leftovers(driver) == []
