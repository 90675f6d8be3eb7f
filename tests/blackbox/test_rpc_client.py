# SPDX-License-Identifier: Apache-2.0
"""The blocking client of lib/rpc, against grpcio's server and against our own."""
import concurrent.futures
import socket
import subprocess
import threading
import time

import grpc
import pytest

from rpc_util import (ACK, ECHO_DIR, GOAWAY, PREFACE, SETTINGS, SLOW, EchoServer, frame, pb)


class Theirs(grpc.GenericRpcHandler):
    """The echo service, as grpcio has it."""

    def service(self, details):
        method = getattr(self, details.method.rsplit("/", 1)[1], None)
        name = details.method.rsplit("/", 1)[1]
        if not method:
            return None
        return grpc.unary_unary_rpc_method_handler(
            method, request_deserializer=getattr(pb, name + "Request").FromString,
            response_serializer=lambda m: m if isinstance(m, bytes) else m.SerializeToString())

    def Echo(self, request, context):
        if request.text == "bad":
            return b"\x0a\x01\xff"  # text that is not UTF-8
        if request.text == "broken":
            return b"\x0a\x7f"
        return pb.EchoResponse(text=request.text, data=b"x" * request.fill)

    def Fail(self, request, context):
        context.abort(next(c for c in grpc.StatusCode if c.value[0] == request.code), request.message)

    def Sleep(self, request, context):
        time.sleep(request.ms / 1000)
        return pb.SleepResponse(serial=1)


@pytest.fixture
def theirs(tmp_path):
    path = str(tmp_path / "theirs.sock")
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(4), handlers=[Theirs()],
                         options=[("grpc.max_send_message_length", -1)])
    assert server.add_insecure_port("unix:" + path)
    server.start()
    yield path
    server.stop(None)


def client(endpoint, *args, timeout=60):
    r = subprocess.run([str(ECHO_DIR / "echo_client"), endpoint, *map(str, args)], capture_output=True, text=True,
                       timeout=timeout)
    assert "Sanitizer" not in r.stderr and "runtime error" not in r.stderr, r.stderr
    return r


@pytest.mark.parametrize("form", ["unix://{}", "unix:{}", "{}"])
def test_endpoints(theirs, form):
    assert client(form.format(theirs), "echo", "hällo").stdout == "hällo\n"


@pytest.mark.parametrize("endpoint", ["tcp://1.2.3.4:5", "http://x/", "unix://", "unix:", ""])
def test_endpoint_that_is_no_unix_socket(endpoint):
    r = client(endpoint, "echo", "x")
    assert r.returncode == 1 and "is not the address of a Unix socket" in r.stdout


def test_statuses_of_their_server(theirs):
    for code in grpc.StatusCode:
        if code is not grpc.StatusCode.OK:
            r = client(theirs, "fail", code.value[0], "schlecht: 100 %\n💾")
            assert r.stdout == f"EPROTO {code.name}: schlecht: 100 %\n💾\n"
    assert client(theirs, "missing").stdout.startswith("EPROTO UNIMPLEMENTED: ")


def test_large_responses_of_their_server(theirs):
    for n in (1, 65536, 5_000_000, 40_000_000):
        assert client(theirs, "fill", n).stdout == f"{n}\n"
    assert "RESOURCE_EXHAUSTED: the answer: the message has 7" in client(theirs, "fill", 70_000_000).stdout


def test_answers_that_are_no_messages(theirs):
    assert "INVALID_ARGUMENT: the answer: field `text` is not valid UTF-8" in client(theirs, "echo", "bad").stdout
    assert "INTERNAL: the answer: field `text` is malformed" in client(theirs, "echo", "broken").stdout


def test_many_calls_on_one_connection(theirs):
    lines = "".join(f"line {i}\n" for i in range(500))
    r = subprocess.run([str(ECHO_DIR / "echo_client"), theirs, "repeat"], input=lines, capture_output=True, text=True)
    assert r.stdout == lines


def test_progress_is_told_while_waiting(theirs):
    r = client(theirs, "sleep", "k", 650, 0)
    assert r.stdout == "1\n"
    times = [int(line.split()[1]) for line in r.stderr.splitlines()]
    assert 3 <= len(times) <= 7 and times == sorted(times) and times[0] >= 100


def test_deadline_without_an_answer(tmp_path):
    """A server that takes the call and says nothing."""
    path = str(tmp_path / "mute.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        begun = time.monotonic()
        r = client(path, "echo", "x", 300)
        assert r.stdout == f"ETIMEDOUT DEADLINE_EXCEEDED: no answer from `{path}` within 0.300 s\n"
        assert 0.3 <= time.monotonic() - begun < 5 * SLOW


def test_nobody_there(tmp_path):
    path = str(tmp_path / "none.sock")
    assert client(path, "echo", "x").stdout == f"ENOENT UNAVAILABLE: connect to `{path}`: No such file or directory\n"
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
    assert client(path, "echo", "x").stdout == f"ECONNREFUSED UNAVAILABLE: connect to `{path}`: Connection refused\n"


@pytest.mark.parametrize("says, text", [
    (b"", "UNAVAILABLE: the connection to"),
    (b"HTTP/1.1 400 Bad Request\r\n\r\n", "UNAVAILABLE: the connection to"),
    (frame(SETTINGS, 0, 0), "UNAVAILABLE: the connection to"),
    (frame(SETTINGS, 0, 0) + frame(GOAWAY, 0, 0, b"\0\0\0\0\0\0\0\0"), "UNAVAILABLE: the server has reset the call"),
    (frame(SETTINGS, 0, 0) + frame(1, 5, 1, b"\x8c"), "the server has answered with HTTP status 400"),
    (frame(SETTINGS, 0, 0) + frame(0, 1, 1, b"nonsense"), ""),
])
def test_servers_that_are_broken(tmp_path, says, text):
    path = str(tmp_path / "broken.sock")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()

        def serve():
            peer, _ = listener.accept()
            with peer:
                peer.recv(65536)
                peer.sendall(says)
                peer.settimeout(0.2)
                try:
                    while peer.recv(65536):
                        pass
                except socket.timeout:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        r = client(path, "echo", "x")
        thread.join()
        assert r.returncode == 1 and text in r.stdout, r.stdout


def test_connection_is_made_anew_when_the_server_was_restarted(tmp_path):
    with EchoServer(tmp_path) as server:
        process = subprocess.Popen([str(ECHO_DIR / "echo_client"), server.socket, "repeat"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True, bufsize=1)

        def say(text):
            process.stdin.write(text + "\n")
            process.stdin.flush()
            return process.stdout.readline().rstrip("\n")

        assert say("one") == "one"
        server.stop()
        assert say("two").startswith("UNAVAILABLE: connect to")
        with EchoServer(tmp_path) as again:
            assert say("three") == "three"
            again.kill()
            again.process.returncode = 0
        with EchoServer(tmp_path):
            assert say("four") == "four"
        process.stdin.close()
        assert process.wait(10) == 0
