# SPDX-License-Identifier: Apache-2.0
"""Peers of a server on lib/rpc that are broken, slow or hostile.  Frames are made by hand."""
import random
import socket
import time

import pytest

from rpc_util import (ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, PING, PREFACE, RST, SETTINGS,
                      SANITIZED, SLOW, WINDOW_UPDATE, EchoServer, block, frame, head, message, pb, request)

CALM = b"\0\0\0\x0b"  # ENHANCE_YOUR_CALM


@pytest.fixture
def server(tmp_path):
    with EchoServer(tmp_path, "--stream-ms", 400 * SLOW) as s:
        yield s
        # Whatever was done to it.
        assert s.client("echo", "still here").stdout == "still here\n"
        s.wait_stats(lambda stats: stats["busy"] == 0)


@pytest.mark.parametrize("greeting", [
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\0\1\0", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n",
    PREFACE + b"\xff" * 100, PREFACE + frame(DATA, 0, 1, b"x"), PREFACE + frame(SETTINGS, 0, 0, b"12345"),
    PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 2, b"\x82"),
    PREFACE + frame(SETTINGS, 0, 0) + frame(HEADERS, END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff"),
    PREFACE + frame(SETTINGS, 0, 0) + frame(WINDOW_UPDATE, 0, 0, b"\0\0\0\0"),
    PREFACE + frame(SETTINGS, 0, 0) + frame(CONTINUATION, END_HEADERS, 1, b""),
])
def test_nonsense_ends_the_connection(server, greeting):
    with server.connect(hello=False) as raw:
        raw.send(greeting)
        raw.recv_end()


def test_client_may_die_at_any_byte(server):
    text = (PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0) +
            request(1, "Echo", pb.EchoRequest(text="x")) + frame(PING, 0, 0, b"12345678") +
            request(3, "Sleep", pb.SleepRequest(key="k", ms=1)) + frame(RST, 0, 3, b"\0\0\0\x08") +
            request(5, "Nonsense") + frame(GOAWAY, 0, 0, b"\0" * 8))
    for n in range(len(text) + 1):
        with server.connect(hello=False) as raw:
            raw.send(text[:n])
            if n % 3 == 0:  # some leave politely, others with a reset: unread input makes one
                raw.sock.shutdown(socket.SHUT_WR)
                raw.recv_end()


def test_byte_by_byte_is_as_good_as_all_at_once(server):
    text = request(1, "Echo", pb.EchoRequest(text="abc"))
    with server.connect() as raw:
        for byte in text:
            raw.send(bytes([byte]))
        assert raw.recv_until(DATA, 1)[5:] == pb.EchoResponse(text="abc").SerializeToString()


def test_random_noise_after_a_good_start(server):
    rng = random.Random(1)
    good = b"".join(request(i, "Echo", pb.EchoRequest(text="x" * i)) for i in range(1, 9, 2))
    for _ in range(200):
        noise = bytearray(good)
        for _ in range(rng.randrange(1, 8)):
            noise[rng.randrange(len(noise))] = rng.randrange(256)
        with server.connect() as raw:
            try:
                raw.send(bytes(noise))
                raw.sock.shutdown(socket.SHUT_WR)
                raw.recv_end()
            except (BrokenPipeError, ConnectionResetError, OSError):
                pass


# --------------------------------------------------------------------- slow

def test_slow_handshake_is_given_up(server):
    for start in (b"", PREFACE[:10], PREFACE, PREFACE + frame(SETTINGS, 0, 0, b"\0" * 6)[:12]):
        with server.connect(hello=False) as raw:
            begun = time.monotonic()
            raw.send(start)
            raw.recv_end()
            assert time.monotonic() - begun > 0.3 * SLOW


def test_slow_head_ends_the_connection(server):
    with server.connect() as raw:
        b = block(head("Echo"))
        raw.send(frame(HEADERS, 0, 1, b[:20]))
        raw.recv_end()


def test_slow_body_is_answered_and_the_connection_lives(server):
    with server.connect() as raw:
        raw.send(frame(HEADERS, END_HEADERS, 1, block(head("Echo"))) + frame(DATA, 0, 1, message(b"x" * 100)[:50]))
        end = time.monotonic() + 10 * SLOW
        while True:  # a byte now and then
            assert time.monotonic() < end
            raw.send(frame(DATA, 0, 1, b"x"))
            raw.sock.settimeout(0.05)
            try:
                f = raw.recv_frame()
            except socket.timeout:
                continue
            if f[0] == HEADERS:
                assert f[1] & END_STREAM
                break
        raw.sock.settimeout(10 * SLOW)
        assert raw.recv_until(RST, 1) == b"\0\0\0\0"
        raw.send(request(3, "Echo", pb.EchoRequest(text="abc")))
        assert raw.recv_until(DATA, 3)


def test_idle_connection_is_not_slow(server):
    with server.connect() as raw:
        assert raw.is_alive()
        time.sleep(1.0 * SLOW)
        assert raw.is_alive()


def test_response_that_is_not_read_is_given_up(server):
    # The window is never opened: the response does not fit.
    with server.connect() as raw:
        raw.send(request(1, "Echo", pb.EchoRequest(fill=1000000)))
        assert raw.recv_until(RST, 1) == b"\0\0\0\x08"
        raw.send(request(3, "Echo", pb.EchoRequest(text="abc")))
    # The window is open, but the socket is not read: the connection goes.
    with server.connect() as raw:
        assert raw.is_alive()
        before = server.fds()
        raw.send(frame(WINDOW_UPDATE, 0, 0, b"\x7f\0\0\0"))
        for i in range(1, 9, 2):
            raw.send(frame(SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff") + request(i, "Echo", pb.EchoRequest(fill=4000000)))
        end = time.monotonic() + 10 * SLOW
        while server.fds() >= before:
            assert time.monotonic() < end
            time.sleep(0.02)


def test_response_that_is_read_byte_by_byte_is_given_up(server):
    # Through the window.
    with server.connect(hello=False) as raw:
        raw.send(PREFACE + frame(SETTINGS, 0, 0, b"\0\4\0\0\0\1") + request(1, "Echo", pb.EchoRequest(fill=10000)))
        begun = time.monotonic()
        while (f := raw.recv_frame())[0] != RST:
            assert time.monotonic() < begun + 10 * SLOW
            if f[0] == DATA:
                time.sleep(0.05)
                raw.send(frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"))
        assert f[2:] == (1, b"\0\0\0\x08")
    # Through the socket, which takes more once it is half empty.
    with server.connect() as raw:
        assert raw.is_alive()
        before = server.fds()
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        raw.send(frame(WINDOW_UPDATE, 0, 0, b"\x7f\0\0\0") + frame(SETTINGS, 0, 0, b"\0\4\x7f\xff\xff\xff"))
        for i in range(1, 9, 2):
            raw.send(request(i, "Echo", pb.EchoRequest(fill=4000000)))
        begun = time.monotonic()
        while server.fds() >= before:
            assert time.monotonic() < begun + 10 * SLOW
            raw.sock.recv(1000)
            time.sleep(0.05)


# -------------------------------------------------------------------- floods

def test_rapid_reset_is_stopped_and_starts_few_jobs(server):
    with server.connect() as raw:
        try:
            for i in range(1, 8001, 2):
                raw.send(frame(HEADERS, END_HEADERS, i, block(head("Echo"))) + frame(RST, 0, i, b"\0\0\0\x08"))
        except (BrokenPipeError, ConnectionResetError):
            pass
        frames = raw.recv_end()
        assert [f[3][4:8] for f in frames if f[0] == GOAWAY] in ([CALM], [])
    assert server.stats()["done"]["OK"] == 0


def test_making_the_server_reset_is_stopped(server):
    with server.connect() as raw:
        try:
            for i in range(1, 8001, 2):  # each is malformed: an upper-case name
                raw.send(frame(HEADERS, END_HEADERS, i, block(head("Echo") + [("X", "1")])))
        except (BrokenPipeError, ConnectionResetError):
            pass
        frames = raw.recv_end()
        assert len([f for f in frames if f[0] == RST]) < 1000


def test_continuation_flood_is_stopped(server):
    with server.connect() as raw:
        try:
            raw.send(frame(HEADERS, 0, 1, b""))
            for _ in range(10000):
                raw.send(frame(CONTINUATION, 0, 1, b"\0\1x\1y" * 100))
        except (BrokenPipeError, ConnectionResetError):
            pass
        raw.recv_end()


@pytest.mark.parametrize("flood", [
    frame(PING, 0, 0, b"12345678"), frame(SETTINGS, 0, 0), frame(SETTINGS, 0, 0, b"\0\4\0\0\0\1" * 20)])
@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the server's")
def test_flood_without_reading_does_not_grow_memory(server, flood):
    with server.connect() as raw:
        raw.sock.settimeout(0.5)
        raw.is_alive()
        before = server.rss_kib()
        sent = 0
        try:
            while sent < 50_000_000:
                sent += raw.sock.send(flood * 1000)
        except (socket.timeout, BrokenPipeError, ConnectionResetError):
            pass
        # The socket is full, or closed: what was sent is what socket buffers hold, not what the server does.
        assert sent < 10_000_000
        assert server.rss_kib() - before < 1024


def test_too_many_streams_are_refused(tmp_path):
    with EchoServer(tmp_path, "--max-streams", 4) as server:
        with server.connect(hello=False) as raw:
            # Sent before the client has heard of the limit.
            raw.send(PREFACE + frame(SETTINGS, 0, 0))
            for i in range(1, 21, 2):
                raw.send(request(i, "Sleep", pb.SleepRequest(ms=300 * SLOW)))
            refused, served = set(), set()
            while len(refused) + len(served) < 10:
                f = raw.recv_frame()
                if f[0] == RST:
                    assert f[3] == b"\0\0\0\x07"
                    refused.add(f[2])
                if f[0] == DATA:
                    served.add(f[2])
            assert served == {1, 3, 5, 7}


def test_large_head_is_refused(server):
    with server.connect() as raw:
        raw.send(frame(HEADERS, 0, 1, block(head("Echo", x_large="y" * 16000))) +
                 frame(CONTINUATION, END_HEADERS, 1, block([("x-more", "z" * 5000)])) +
                 frame(DATA, END_STREAM, 1, message(b"")))
        raw.recv_until(HEADERS, 1, END_STREAM)
        raw.send(request(3, "Echo", pb.EchoRequest(text="abc")))
        assert raw.recv_until(DATA, 3)
    assert server.stats()["done"]["RESOURCE_EXHAUSTED"] == 1


def test_announced_sizes_take_no_memory(server):
    with server.connect() as raw:
        raw.is_alive()
        before = server.rss_kib()
        for i in range(1, 201, 2):
            raw.send(frame(HEADERS, END_HEADERS, i, block(head("Echo"))) + frame(DATA, 0, i, b"\0\0\x3f\xff\xff" + b"x"))
        assert raw.is_alive()
        if not SANITIZED:
            assert server.rss_kib() - before < 2048


def test_bodies_that_do_not_end_share_a_budget(tmp_path):
    with EchoServer(tmp_path, "--max-memory-bytes", 2 << 20, "--stream-ms", 2000 * SLOW) as server:
        with server.connect() as raw:
            raw.is_alive()
            before = server.rss_kib()
            piece = b"x" * 16384
            try:
                for i in range(1, 61, 2):
                    raw.send(frame(HEADERS, END_HEADERS, i, block(head("Echo"))) +
                             frame(DATA, 0, i, b"\0\0\x3f\xff\xff") + frame(DATA, 0, i, piece) * 3)
                    raw.send(frame(PING, 0, 0, b"12345678"))
                    raw.recv_until(PING, flags=ACK)
            except AssertionError:
                pass
            if not SANITIZED:
                assert server.rss_kib() - before < 6 * 1024
        assert server.client("echo", "x").stdout == "x\n"
        stats = server.stats()
        assert stats["done"]["UNAVAILABLE"] > 0 or stats["done"]["OK"] == 1


def test_responses_that_are_not_read_share_the_budget(tmp_path):
    with EchoServer(tmp_path, "--max-memory-bytes", 4 << 20) as server:
        with server.connect() as raw:
            raw.is_alive()
            before = server.rss_kib()
            for i in range(1, 121, 2):  # 60 MB, were they all kept
                raw.send(request(i, "Echo", pb.EchoRequest(fill=1000000)))
            stats = server.wait_stats(lambda s: sum(s["done"].values()) == 60)
            assert stats["done"]["UNAVAILABLE"] >= 40
            if not SANITIZED:
                assert server.rss_kib() - before < 16 * 1024
        assert server.client("echo", "x").stdout == "x\n"


def test_trailers_and_padding_are_understood(server):
    data = message(pb.EchoRequest(text="abc"))
    with server.connect() as raw:
        padded = frame(DATA, 0x8, 1, bytes([7]) + data + b"\0" * 7)
        raw.send(frame(HEADERS, END_HEADERS, 1, block(head("Echo"))) + padded +
                 frame(HEADERS, END_HEADERS | END_STREAM, 1, block([("x-checksum", "1")])))
        assert raw.recv_until(DATA, 1)[5:] == pb.EchoResponse(text="abc").SerializeToString()


def test_unknown_frames_are_ignored(server):
    with server.connect() as raw:
        raw.send(frame(0xbe, 0xff, 0, b"grease") + frame(0xbf, 1, 77, b"") + frame(2, 0, 1, b"\0\0\0\0\x10") +
                 request(1, "Echo", pb.EchoRequest(text="abc")))
        assert raw.recv_until(DATA, 1)


def test_windows_that_change_are_kept(server):
    """The client's initial window is one byte; it is opened byte by byte, then wide."""
    with server.connect(hello=False) as raw:
        raw.send(PREFACE + frame(SETTINGS, 0, 0, b"\0\4\0\0\0\1") + request(1, "Echo", pb.EchoRequest(text="abcdef")))
        body = b""
        while len(body) < 5:
            f = raw.recv_frame()
            if f[0] == DATA:
                assert len(f[3]) == 1
                body += f[3]
                raw.send(frame(WINDOW_UPDATE, 0, 1, b"\0\0\0\1"))
        raw.send(frame(WINDOW_UPDATE, 0, 1, b"\0\0\x10\0"))
        while True:
            f = raw.recv_frame()
            if f[0] == DATA:
                body += f[3]
            if f[0] == HEADERS and f[1] & END_STREAM:
                break
        assert body == message(pb.EchoResponse(text="abcdef"))
