# SPDX-License-Identifier: Apache-2.0
"""The HTTP server for probes and metrics: lib/rpc/http.c."""
import os
import socket
import stat
import time

import pytest

from rpc_util import SLOW, EchoServer, http_get, http_raw, read_all


def free_port(host="127.0.0.1"):
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as s:
        s.bind((host, 0))
        return s.getsockname()[1]


@pytest.fixture
def address(tmp_path):
    port = free_port()
    with EchoServer(tmp_path, http=f"127.0.0.1:{port}"):
        yield "127.0.0.1", port


def test_get_and_head(address):
    code, headers, body = http_get(address, "/healthz")
    assert (code, body) == (200, b"ok\n")
    assert headers["content-length"] == "3" and headers["connection"] == "close"
    assert headers["content-type"] == "text/plain; charset=utf-8"
    code, headers, body = http_get(address, "/healthz", "HEAD")
    assert (code, body, headers["content-length"]) == (200, b"", "3")
    code, headers, body = http_get(address, "/stats?pretty=1")
    assert code == 200 and headers["content-type"] == "application/json" and body.startswith(b"{")


@pytest.mark.parametrize("request_, code", [
    (b"GET /nothing HTTP/1.1\r\n\r\n", 404),
    (b"GET /healthz/ HTTP/1.1\r\n\r\n", 404),
    (b"GET /down HTTP/1.1\r\n\r\n", 503),
    (b"POST /healthz HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", 405),
    (b"PUT / HTTP/1.1\r\n\r\n", 405),
    (b"nonsense\r\n\r\n", 400),
    (b"GET /healthz HTTP/1.1\r\nno field\r\n\r\n", 400),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    (b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 431),
    (b"GET /" + b"y" * 100000, 431),
    (b"GET /healthz HTTP/1.1\r\nX: " + b"y" * 8000 + b"\r\n\r\n", 200),
    (b"GET /healthz HTTP/1.0\n\n", 200),
    (b"GET /healthz HTTP/1.1\r\n\r\nGET /down HTTP/1.1\r\n\r\n", 200),
])
def test_every_request_has_its_status_and_the_connection_ends(address, request_, code):
    reply = http_raw(address, request_)
    head, body = reply.split(b"\r\n\r\n", 1)
    assert head.startswith(b"HTTP/1.1 %d " % code) and b"Connection: close" in head
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert (b"Allow: GET, HEAD" in head) == (code == 405)
    assert http_get(address, "/healthz")[0] == 200


def test_request_may_come_byte_by_byte(address):
    with socket.create_connection(address) as s:
        s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n":
            s.sendall(bytes([byte]))
        assert read_all(s).endswith(b"ok\n")


def test_large_response_to_a_slow_reader_arrives_whole(tmp_path):
    with EchoServer(tmp_path) as server, socket.socket(socket.AF_UNIX) as s:
        s.connect(server.http_socket)
        s.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        time.sleep(0.3)  # the socket has room for a part of it only
        assert http_get(server.http_socket, "/healthz")[0] == 200  # others do not wait for it
        assert read_all(s).split(b"\r\n\r\n", 1)[1] == b"0123456789" * 200000


def test_reader_that_is_too_slow_is_cut_off(tmp_path):
    with EchoServer(tmp_path) as server, socket.socket(socket.AF_UNIX) as s:
        s.connect(server.http_socket)
        s.sendall(b"GET /large HTTP/1.1\r\n\r\n")
        time.sleep(5.5 * (SLOW if SLOW == 1 else 1.5))
        assert len(read_all(s)) < 2000000


@pytest.mark.parametrize("sent", [b"", b"GET /healthz HT"], ids=["silent", "slow"])
def test_clients_that_do_not_ask_are_cut_off_and_do_not_keep_others_out(address, sent):
    slow = []
    for _ in range(50):
        s = socket.create_connection(address)
        s.sendall(sent)
        slow.append(s)
    begun = time.monotonic()
    assert http_get(address, "/healthz")[0] == 200
    assert time.monotonic() - begun < 2 * SLOW
    for s in slow:
        s.settimeout(30)
        try:
            assert s.recv(10) == b""
        except ConnectionResetError:
            pass  # closed with a part of the request unread
        s.close()


def test_clients_that_are_slow_to_read_keep_their_place(tmp_path):
    with EchoServer(tmp_path) as server:
        slow = []
        for _ in range(16):
            s = socket.socket(socket.AF_UNIX)
            s.connect(server.http_socket)
            s.sendall(b"GET /large HTTP/1.1\r\n\r\n")
            assert s.recv(1) == b"H"
            slow.append(s)
        with socket.socket(socket.AF_UNIX) as last:
            last.connect(server.http_socket)
            last.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
            assert read_all(slow[0]).split(b"\r\n\r\n", 1)[1] == b"0123456789" * 200000
            assert read_all(last).endswith(b"ok\n")
        for s in slow:
            s.close()


def test_clients_that_do_not_close_make_room(address):
    lingering = []
    begun = time.monotonic()
    for _ in range(40):
        s = socket.create_connection(address)
        s.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        assert s.recv(1000).endswith(b"ok\n")
        lingering.append(s)
    assert time.monotonic() - begun < 4 * SLOW
    [s.close() for s in lingering]


def test_clients_that_vanish_are_forgotten(address):
    for i in range(75):
        with socket.create_connection(address) as s:
            if i % 2:
                s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            s.sendall(b"GET /large HTTP/1.1\r\n\r\n"[:i % 25])
    assert http_get(address, "/healthz")[0] == 200


@pytest.mark.parametrize("listen, connect", [
    ("127.0.0.1:{}", "127.0.0.1"), (":{}", "127.0.0.1"), ("localhost:{}", "127.0.0.1"), ("0.0.0.0:{}", "127.0.0.1"),
    ("[::1]:{}", "::1"), (":{}", "::1"), ("[::]:{}", "127.0.0.1"), ("[::]:{}", "::1")])
def test_addresses(tmp_path, listen, connect):
    if ":" in connect + listen.replace(":{}", ""):
        try:
            free_port("::1")
        except OSError:
            pytest.skip("this machine has no IPv6")
    port = free_port()
    with EchoServer(tmp_path, http=listen.format(port)):
        assert http_get((connect, port), "/healthz")[0] == 200


def test_unix_socket_is_roots_alone_and_removed_at_the_end(tmp_path):
    with EchoServer(tmp_path) as server:
        assert http_get(server.http_socket, "/healthz")[0] == 200
        assert stat.S_IMODE(os.stat(server.http_socket).st_mode) == 0o600
    assert not os.path.exists(server.http_socket)


def test_port_can_be_used_again_at_once(tmp_path):
    port = free_port()
    for _ in range(3):
        with EchoServer(tmp_path, http=f"127.0.0.1:{port}"):
            assert http_get(("127.0.0.1", port), "/healthz")[0] == 200


@pytest.mark.parametrize("address, text", [
    ("nonsense", "is not an address such as"), ("1.2.3.4", "is not an address such as"),
    ("::1:80", "is not an address such as"), ("[::1]", "is not an address such as"), ("[]:80", "is not an address such as"),
    ("127.0.0.1:", "is not an address such as"), ("127.0.0.1:http", "is not an"), ("127.0.0.1:99999", "is not an"),
    ("192.0.2.1:80", "Cannot assign requested address"), ("unix:///nowhere/x.sock", "No such file or directory")])
def test_address_that_cannot_be_served_is_an_error(tmp_path, address, text):
    server = EchoServer(tmp_path, http=address)
    assert not server.is_ready and server.process.wait() == 1
    assert text in server.log() and "Sanitizer" not in server.log()


def test_address_in_use_is_an_error(tmp_path):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        s.listen()
        server = EchoServer(tmp_path, http="127.0.0.1:%d" % s.getsockname()[1])
        assert not server.is_ready and server.process.wait() == 1
        assert "Address already in use" in server.log()
