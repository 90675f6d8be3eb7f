# SPDX-License-Identifier: Apache-2.0
"""What the tests of lib/rpc share: the echo server, messages, and HTTP/2 frames made by hand.

BUILD names the tree that was built (the Makefile sets it; by default the plain one), so that the same tests run
against the builds with sanitizers.
"""
import contextlib
import importlib
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.request

import grpc

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("BUILD", ROOT / "build/plain"))
ECHO_DIR = BUILD / "tests/lib"
SANITIZED = not BUILD.name.startswith("plain")
SLOW = 4 if SANITIZED else 1  # time limits are this much larger
SERVICE = "/uc.test.v1.Echo/"


def _messages():
    """The Python classes of echo.proto, made anew when it has changed."""
    proto, out = ROOT / "tests/lib/echo.proto", ROOT / "build/gen/py"
    module = out / "echo_pb2.py"
    if not module.exists() or module.stat().st_mtime < proto.stat().st_mtime:
        out.mkdir(parents=True, exist_ok=True)
        subprocess.run(["protoc", f"-I{proto.parent}", f"--python_out={out}", str(proto)], check=True)
    sys.path.insert(0, str(out))
    return importlib.import_module("echo_pb2")


pb = _messages()


class EchoServer:
    """A running echo_server.  Its end is checked: exit status, and nothing from a sanitizer."""

    def __init__(self, directory, *args, socket_path=None, http="unix", wrap=(), debug=True):
        self.dir = pathlib.Path(directory)
        self.socket = str(socket_path or self.dir / "echo.sock")
        self.http_socket = str(self.dir / "http.sock")
        self.log_path = self.dir / "server.log"
        command = [*wrap, str(ECHO_DIR / "echo_server"), "--socket", self.socket, *map(str, args)]
        if debug:
            command += ["--debug"]
        if http == "unix":
            command += ["--http", "unix://" + self.http_socket]
        elif http:
            command += ["--http", http]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
        line = self.process.stdout.readline()
        self.is_ready = line == b"ready\n"

    def __enter__(self):
        assert self.is_ready, self.log()
        return self

    def __exit__(self, kind, *_):
        self.stop(check=kind is None)

    def log(self):
        return self.log_path.read_text(errors="replace")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, check=True, within=20):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(within * SLOW)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        finally:
            self.process.stdout.close()
        log = self.log()
        assert "Sanitizer" not in log and "runtime error" not in log, log
        if check:
            assert self.process.returncode == 0, (self.process.returncode, log)

    def stats(self):
        return json.loads(http_get(self.http_socket, "/stats")[2])

    def wait_stats(self, condition, within=10):
        """Waits until the server's numbers are as they should be."""
        end = time.monotonic() + within * SLOW
        while True:
            stats = self.stats()
            if condition(stats):
                return stats
            assert time.monotonic() < end, stats
            time.sleep(0.01)

    def rss_kib(self):
        for line in pathlib.Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
        raise AssertionError("no VmRSS")

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def fds(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    @contextlib.contextmanager
    def channel(self, *options):
        # A pool of their own: channels of a process share connections otherwise.
        options = [("grpc.use_local_subchannel_pool", 1), *options]
        with grpc.insecure_channel("unix:" + self.socket, options=options) as channel:
            yield Stub(channel)

    def client(self, *args, **kwargs):
        return subprocess.run([str(ECHO_DIR / "echo_client"), self.socket, *map(str, args)],
                              capture_output=True, text=True, timeout=60, **kwargs)

    def connect(self, hello=True, timeout=10):
        return Raw(self.socket, hello, timeout * SLOW)


class Stub:
    """The service's methods on a channel; requests are keyword arguments."""

    def __init__(self, channel):
        self.channel = channel

    def method(self, name, response=None, serializer=None):
        message = getattr(pb, name + "Response", pb.EchoResponse) if response is None else response
        return self.channel.unary_unary(SERVICE + name,
                                        request_serializer=serializer or (lambda m: m.SerializeToString()),
                                        response_deserializer=message.FromString)

    def call(self, name, timeout=30, **fields):
        request = getattr(pb, name + "Request", pb.EchoRequest)(**fields)
        return self.method(name)(request, timeout=timeout * (SLOW if timeout >= 5 else 1))

    def start(self, name, timeout=None, **fields):
        """A call that is not waited for."""
        return self.method(name).future(getattr(pb, name + "Request")(**fields), timeout=timeout)

    def raw(self, name, data, timeout=30):
        """A call with bytes that need not be a message."""
        return self.method(name, serializer=lambda m: m)(data, timeout=timeout)


@contextlib.contextmanager
def status(code, text=None):
    """The block ends in an RPC error with this code, and this text in its details."""
    try:
        yield
    except grpc.RpcError as e:
        assert e.code() == code, (e.code(), e.details())
        assert text is None or text in e.details(), e.details()
    else:
        raise AssertionError(f"no error; {code} was expected")


def http_raw(address, data, timeout=20):
    """Sends bytes to a Unix path or (host, port), and returns all that comes back."""
    family = socket.AF_UNIX if isinstance(address, str) else (
        socket.AF_INET6 if ":" in address[0] else socket.AF_INET)
    with socket.socket(family) as s:
        s.settimeout(timeout)
        s.connect(address)
        s.sendall(data)
        return read_all(s)


def read_all(s):
    data = b""
    while True:
        piece = s.recv(65536)
        if not piece:
            return data
        data += piece


def http_get(address, path, method="GET"):
    """(status, headers, body)"""
    reply = http_raw(address, f"{method} {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    head, body = reply.split(b"\r\n\r\n", 1)
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    return int(lines[0].split()[1]), headers, body


# ---------------------------------------------------------------- HTTP/2 by hand

DATA, HEADERS, RST, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS = 1, 1, 4
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _string(s):
    n, out = len(s), b""
    if n < 127:
        return bytes([n]) + s
    out, n = b"\x7f", n - 127
    while n >= 128:
        out, n = out + bytes([n % 128 + 128]), n // 128
    return out + bytes([n]) + s


def block(fields):
    """Fields, none of them indexed (RFC 7541, 6.2.2)."""
    return b"".join(b"\0" + _string(k.encode()) + _string(v if isinstance(v, bytes) else v.encode())
                    for k, v in fields)


def head(method="Echo", **more):
    fields = [(":method", "POST"), (":scheme", "http"), (":path", SERVICE + method),
              (":authority", "localhost"), ("content-type", "application/grpc"), ("te", "trailers")]
    return fields + [(k.replace("_", "-"), v) for k, v in more.items()]


def message(m, flag=0):
    data = m if isinstance(m, bytes) else m.SerializeToString()
    return bytes([flag]) + struct.pack(">I", len(data)) + data


def request(stream, method="Echo", m=b"", **more):
    """The frames of a whole call."""
    return (frame(HEADERS, END_HEADERS, stream, block(head(method, **more))) +
            frame(DATA, END_STREAM, stream, message(m)))


class Raw:
    """A connection that says what it is told to."""

    def __init__(self, path, hello=True, timeout=10):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(path)
        self.buffer = b""
        if hello:
            self.send(PREFACE + frame(SETTINGS, 0, 0) + frame(SETTINGS, ACK, 0))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def recv_frame(self):
        """(kind, flags, stream, payload), or None at the end of the connection."""
        while len(self.buffer) < 9 or len(self.buffer) < 9 + self._length():
            try:
                piece = self.sock.recv(65536)
            except ConnectionResetError:
                piece = b""
            if not piece:
                return None
            self.buffer += piece
        n = self._length()
        kind, flags = self.buffer[3], self.buffer[4]
        stream = struct.unpack(">I", self.buffer[5:9])[0] & 0x7FFFFFFF
        payload, self.buffer = self.buffer[9:9 + n], self.buffer[9 + n:]
        return kind, flags, stream, payload

    def _length(self):
        return struct.unpack(">I", b"\0" + self.buffer[:3])[0]

    def recv_until(self, kind, stream=None, flags=0):
        """The payload of the next such frame; others are dropped.  Fails at the end of the connection."""
        while True:
            f = self.recv_frame()
            assert f is not None, "the connection was closed"
            if f[0] == kind and (stream is None or f[2] == stream) and f[1] & flags == flags:
                return f[3]

    def recv_end(self):
        """Reads to the end of the connection; returns all frames."""
        frames = []
        while True:
            f = self.recv_frame()
            if f is None:
                return frames
            frames.append(f)

    def is_alive(self):
        self.send(frame(PING, 0, 0, b"12345678"))
        return self.recv_until(PING, flags=ACK) == b"12345678"
