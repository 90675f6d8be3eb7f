# SPDX-License-Identifier: Apache-2.0
"""Sockets, connections, starting and stopping of a server on lib/rpc."""
import os
import pathlib
import socket
import stat
import subprocess
import sys
import threading
import time

import grpc
import pytest

from rpc_util import ACK, ECHO_DIR, GOAWAY, PING, SLOW, DATA, EchoServer, Raw, frame, request, status

Code = grpc.StatusCode


def test_socket_belongs_to_root_alone(tmp_path):
    with EchoServer(tmp_path, wrap=["sh", "-c", 'umask 0; exec "$@"', "sh"]) as server:
        st = os.stat(server.socket)
        assert stat.S_IMODE(st.st_mode) == 0o600 and st.st_uid == os.geteuid()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_other_users_are_refused_even_if_the_mode_lets_them_in(tmp_path):
    with EchoServer(tmp_path) as server:
        os.chmod(server.socket, 0o666)
        for parent in [tmp_path, *tmp_path.parents][:-2]:
            os.chmod(parent, os.stat(parent).st_mode | 0o755)
        script = ("import socket, sys\n"
                  "s = socket.socket(socket.AF_UNIX); s.settimeout(10)\n"
                  "s.connect(sys.argv[1])\n"
                  "try: s.sendall(b'PRI * HTTP/2.0\\r\\n\\r\\nSM\\r\\n\\r\\n'); print(s.recv(1))\n"
                  "except (BrokenPipeError, ConnectionResetError): print(b'')\n")
        def run_as(user):
            return subprocess.run(["setpriv", "--reuid", user, "--regid", user, "--clear-groups", sys.executable,
                                   "-c", script, server.socket], capture_output=True, text=True).stdout
        assert run_as("65534") == "b''\n", server.log()
        assert run_as("0") != "b''\n"
        assert "a peer of another user was sent away" in server.log()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_server_of_a_user_lets_its_user_and_root_in(tmp_path):
    os.chmod(tmp_path, 0o777)
    for parent in tmp_path.parents[:-2]:
        os.chmod(parent, os.stat(parent).st_mode | 0o755)
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"]
    with EchoServer(tmp_path, wrap=user) as server:
        assert server.client("echo", "as root").stdout == "as root\n"
        r = subprocess.run([*user, str(ECHO_DIR / "echo_client"), server.socket, "echo", "as user"],
                           capture_output=True, text=True)
        assert r.stdout == "as user\n"


def test_socket_is_removed_at_the_end(tmp_path):
    with EchoServer(tmp_path) as server:
        assert os.path.exists(server.socket)
    assert not os.path.exists(server.socket)


def test_stale_socket_is_replaced(tmp_path):
    first = EchoServer(tmp_path)
    first.kill()
    assert os.path.exists(first.socket)
    with EchoServer(tmp_path) as server:
        assert server.client("echo", "x").stdout == "x\n"


def test_live_socket_is_left_alone(tmp_path):
    with EchoServer(tmp_path) as server:
        second = EchoServer(tmp_path, http=None)
        assert not second.is_ready and second.process.wait() == 1
        assert f"another process listens on `{server.socket}`" in second.log()
        assert server.client("echo", "still here").stdout == "still here\n"


def test_two_that_start_at_once_do_not_both_win(tmp_path):
    for _ in range(10):
        first = EchoServer(tmp_path)
        first.kill()  # a stale socket, which both want to replace
        servers = []
        threads = [threading.Thread(target=lambda: servers.append(EchoServer(tmp_path, http=None)))
                   for _ in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        winners = [s for s in servers if s.is_ready]
        assert len(winners) == 1
        assert winners[0].client("echo", "x").stdout == "x\n"
        [s.process.wait() for s in servers if not s.is_ready]
        winners[0].stop()


def test_socket_that_is_anothers_by_now_stays(tmp_path):
    server = EchoServer(tmp_path)
    os.unlink(server.socket)
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(server.socket)
        server.stop()
        assert os.path.exists(server.socket)


@pytest.mark.parametrize("kind", ["file", "directory", "symlink"])
def test_what_is_no_socket_is_not_removed(tmp_path, kind):
    path = tmp_path / "x"
    {"file": lambda: path.write_text("precious"), "directory": path.mkdir,
     "symlink": lambda: path.symlink_to("elsewhere")}[kind]()
    server = EchoServer(tmp_path, socket_path=path, http=None)
    assert not server.is_ready and server.process.wait() == 1
    assert "is there and is not a socket" in server.log()
    assert path.is_symlink() or path.exists()


def test_path_may_be_longer_than_an_address(tmp_path):
    directory = tmp_path.joinpath(*["a-directory-with-a-long-name-of-forty-bytes"] * 5)
    directory.mkdir(parents=True)
    with EchoServer(tmp_path, socket_path=directory / "echo.sock") as server:
        assert len(server.socket) > 200
        assert server.client("echo", "from afar").stdout == "from afar\n"
    assert not os.path.exists(server.socket)


def test_two_sockets_serve_the_same_objects(tmp_path):
    second = str(tmp_path / "second.sock")
    with EchoServer(tmp_path, "--socket", second) as server, server.channel() as stub:
        call = stub.start("Sleep", key="v1", ms=700 * SLOW)
        server.wait_stats(lambda s: s["busy"] == 1)
        r = subprocess.run([str(ECHO_DIR / "echo_client"), second, "sleep", "v1", "1", "0"], capture_output=True,
                           text=True)
        assert "ABORTED: `v1` is busy" in r.stdout
        assert call.result().serial == 1
    assert not os.path.exists(second)


# ------------------------------------------------------------------- stopping

def test_running_call_is_answered_at_the_end(tmp_path):
    with EchoServer(tmp_path) as server, server.channel() as stub:
        call = stub.start("Sleep", key="v1", ms=1000 * SLOW)
        server.wait_stats(lambda s: s["busy"] == 1)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun > 0.5
        assert call.result().serial == 1
        assert not os.path.exists(server.socket)
        with status(Code.UNAVAILABLE):
            stub.call("Echo", text="x", timeout=2)


def test_idle_server_ends_at_once(tmp_path):
    with EchoServer(tmp_path) as server, server.channel() as stub:
        stub.call("Echo", text="x")
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 2 * SLOW


def test_request_on_its_way_during_shutdown_is_served(tmp_path):
    with EchoServer(tmp_path) as server, server.connect() as raw:
        raw.send(request(1, "Sleep", b"\x10" + bytes([0x90, 0x03])))  # 400 ms
        server.wait_stats(lambda s: s["busy"] == 1)
        server.process.terminate()
        notice = raw.recv_until(GOAWAY)
        assert notice[:4] == b"\x7f\xff\xff\xff"
        # This one overtakes the news; it was promised to be served.
        raw.send(request(3))
        raw.send(frame(PING, ACK, 0, b"goaway01"))
        frames = raw.recv_end()
        last = [f for f in frames if f[0] == GOAWAY]
        assert [f[3][:8] for f in last] == [b"\0\0\0\3" + b"\0" * 4]
        assert {f[2] for f in frames if f[0] == DATA} == {1, 3}


def test_grace_is_limited(tmp_path):
    with EchoServer(tmp_path, "--grace-ms", 200, "--hang-ms", 400 * SLOW) as server, server.channel() as stub:
        call = stub.start("Hang", key="v1", ms=600000)
        server.wait_stats(lambda s: s["busy"] == 1)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 5 * SLOW
        # The connection was cut, or the job given up: the client may repeat it in both cases.
        assert call.code() in (Code.UNAVAILABLE, Code.ABORTED)


def test_clients_connect_again_to_the_next_server(tmp_path):
    with EchoServer(tmp_path) as server, server.channel() as stub:
        assert stub.call("Echo", text="1").text == "1"
        server.stop()
        with EchoServer(tmp_path) as _:
            end = time.monotonic() + 30
            while True:
                try:
                    assert stub.call("Echo", text="2").text == "2"
                    break
                except grpc.RpcError as e:
                    assert e.code() == Code.UNAVAILABLE and time.monotonic() < end


# ---------------------------------------------------------------- connections

def test_idle_connections_are_closed_and_not_those_in_use(tmp_path):
    with EchoServer(tmp_path, "--idle-ms", 300 * SLOW) as server:
        with server.connect() as idle, server.connect() as busy:
            busy.send(request(1, "Sleep", b"\x10" + bytes([0x90 | 0x80, 0x0f])))  # 2000 ms
            frames = idle.recv_end()
            assert GOAWAY in [f[0] for f in frames]
            busy.recv_until(DATA, 1)
            assert GOAWAY in [f[0] for f in busy.recv_end()]


def test_leaked_connections_make_room(tmp_path):
    with EchoServer(tmp_path, "--max-connections", 4) as server:
        leaked = [server.connect() for _ in range(4)]
        assert all(r.is_alive() for r in leaked)
        time.sleep(1.1)  # idle for as long as it takes to be taken for leaked
        assert leaked[2].is_alive()
        with server.connect() as new:
            assert new.is_alive()
        frames = leaked[0].recv_end()
        assert GOAWAY in [f[0] for f in frames]
        assert [r.is_alive() for r in leaked[1:]] == [True] * 3
        [r.close() for r in leaked]


def test_connections_in_use_do_not_make_room(tmp_path):
    with EchoServer(tmp_path, "--max-connections", 2) as server:
        busy = [server.connect() for _ in range(2)]
        for i, r in enumerate(busy):
            r.send(request(1, "Sleep", b"\x0a\x02v%d\x10\xd0\x0f" % i))  # 2000 ms
        server.wait_stats(lambda s: s["busy"] == 2)
        time.sleep(1.1)
        with server.connect(hello=False) as extra:
            assert extra.recv_frame() is None
        for r in busy:
            r.recv_until(DATA, 1)
            r.close()
        # There is room again.
        end = time.monotonic() + 10
        while server.client("echo", "x").stdout != "x\n":
            assert time.monotonic() < end


def test_running_out_of_descriptors_neither_spins_nor_kills(tmp_path):
    with EchoServer(tmp_path, "--max-fds", 24, "--max-connections", 100) as server:
        clients = [Raw(server.socket, hello=True) for _ in range(40)]
        time.sleep(0.5)
        before = server.cpu_seconds()
        time.sleep(1)
        assert server.cpu_seconds() - before < 0.2
        assert clients[0].is_alive()
        # Who waited in the queue gets its turn when another one goes.
        [c.close() for c in clients[:30]]
        assert clients[-1].is_alive()
        [c.close() for c in clients[30:]]
        assert server.client("echo", "x").stdout == "x\n"


def test_no_descriptor_is_leaked(tmp_path):
    with EchoServer(tmp_path) as server:
        def load():
            for _ in range(50):
                with server.channel() as stub:
                    stub.call("Echo", text="x")
                with server.connect(hello=False) as raw:
                    raw.send(b"nonsense")
            server.stats()

        load()
        before = server.fds()
        load()
        end = time.monotonic() + 5
        while server.fds() > before:
            assert time.monotonic() < end, (before, server.fds())
