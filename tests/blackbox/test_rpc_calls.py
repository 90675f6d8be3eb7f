# SPDX-License-Identifier: Apache-2.0
"""Calls of a real gRPC client (grpcio) to a server on lib/rpc."""
import concurrent.futures
import re
import time

import grpc
import pytest

from rpc_util import SANITIZED, SLOW, EchoServer, pb, status

Code = grpc.StatusCode
MIB = 1 << 20


@pytest.fixture
def server(tmp_path):
    with EchoServer(tmp_path) as s:
        yield s


def test_message_comes_back(server):
    with server.channel() as stub:
        r = stub.call("Echo", text="hällo", data=b"\0\1\2")
        assert (r.text, r.data) == ("hällo", b"\0\1\2")
        r = stub.call("Echo")
        assert (r.text, r.data) == ("", b"")


@pytest.mark.parametrize("authority", [
    "localhost", "", "a_b", "%2Frun%2Fcsi.sock", "/run/csi.sock", "unix:///run/csi.sock", "[::1]:1", "x" * 250])
def test_any_authority_is_accepted(server, authority):
    options = [("grpc.default_authority", authority)] if authority else []
    with server.channel(*options) as stub:
        assert stub.call("Echo", text="x").text == "x"


def test_unknown_methods_and_services_are_unimplemented(server):
    with server.channel() as stub:
        with status(Code.UNIMPLEMENTED, "unknown method `/uc.test.v1.Echo/Missing`"):
            stub.call("Missing")
        with status(Code.UNIMPLEMENTED, "unknown method `/uc.test.v1.Echo/Nonsense`"):
            stub.call("Nonsense")
        with status(Code.UNIMPLEMENTED, "unknown method `/other.Service/Echo`"):
            stub.channel.unary_unary("/other.Service/Echo")(b"", timeout=10)
        assert stub.call("Echo", text="x").text == "x"
    assert server.stats()["unknown"] == 3


def test_every_status_arrives(server):
    with server.channel() as stub:
        for code in Code:
            if code is not Code.OK:
                with status(code, f"about {code.name}"):
                    stub.call("Fail", code=code.value[0], message=f"about {code.name}")
        with status(Code.UNKNOWN, "odd"):
            stub.call("Fail", code=99, message="odd")
        with status(Code.INTERNAL, "Fail failed and did not say why"):
            stub.call("Fail", code=0)


@pytest.mark.parametrize("text", [
    "plain", "", "100 % sure", "two\nlines\tand a tab", "grüße, €, 💾", "a: b; c=d \"quoted\" 'and' \\", "%41"])
def test_text_of_an_error_arrives_as_it_was(server, text):
    with server.channel() as stub:
        try:
            stub.call("Fail", code=9, message=text)
        except grpc.RpcError as e:
            assert e.details() == text


def test_long_text_is_cut_and_arrives(server):
    with server.channel() as stub:
        for text in ("x" * 100000, "ü" * 50000, "💾" * 10000):
            try:
                stub.call("Fail", code=9, message=text)
            except grpc.RpcError as e:
                assert e.code() == Code.FAILED_PRECONDITION
                # What is no character of the text is what its cutting in the handler has left of one.
                got = e.details().rstrip("\ufffd")
                assert 200 < len(got) < 4096 and text.startswith(got)


def test_text_that_is_not_utf8_arrives_repaired(server):
    with server.channel() as stub:
        with status(Code.INTERNAL, "mount: \ufffd\ufffd failed"):
            stub.call("Fail", code=13, raw_message=b"mount: \xff\xfe failed")


def test_small_and_large_bodies_of_a_client_that_compresses(server):
    with grpc.insecure_channel("unix:" + server.socket, compression=grpc.Compression.Gzip) as channel:
        call = channel.unary_unary("/uc.test.v1.Echo/Echo", request_serializer=lambda m: m.SerializeToString(),
                                   response_deserializer=pb.EchoResponse.FromString)
        # Not worth compressing: the client says so in the flag.
        assert call(pb.EchoRequest(text="x"), timeout=10).text == "x"
        with status(Code.UNIMPLEMENTED, "compressed"):
            call(pb.EchoRequest(text="x" * 100000), timeout=10)
        assert call(pb.EchoRequest(text="y"), timeout=10).text == "y"


def test_size_of_a_message_is_limited_and_the_connection_lives(server):
    with server.channel(("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)) as stub:
        for n in (16384, 65535, 65536, 1 * MIB, 4 * MIB - 100):
            assert len(stub.call("Echo", data=b"x" * n).data) == n
        for n in (4 * MIB, 5 * MIB, 40 * MIB):
            with status(Code.RESOURCE_EXHAUSTED, "at most 4194304 are accepted"):
                stub.call("Echo", data=b"x" * n)
        assert stub.call("Echo", text="still here").text == "still here"
        # Responses are the handler's business.
        assert len(stub.call("Echo", fill=20 * MIB).data) == 20 * MIB


def test_bad_requests_are_named_by_their_field(server):
    with server.channel() as stub:
        with status(Code.INVALID_ARGUMENT, "field `text` is not valid UTF-8"):
            stub.raw("Echo", b"\x0a\x02\xff\xfe")
        with status(Code.INVALID_ARGUMENT, "field `text` holds a NUL"):
            stub.call("Echo", text="a\0b")
        with status(Code.INVALID_ARGUMENT, "field `inners[1].labels[0].value` holds a NUL"):
            stub.call("Echo", inners=[pb.Inner(), pb.Inner(labels={"key": "a\0b"})])
        with status(Code.INVALID_ARGUMENT, "field `inners[0].inner.name` holds a NUL"):
            stub.call("Echo", inners=[pb.Inner(inner=pb.Inner(name="\0"))])
        with status(Code.INTERNAL, "the message is not a `uc.test.v1.EchoRequest`"):
            stub.raw("Echo", b"\x07")
        with status(Code.INTERNAL, "field `text` is malformed"):
            stub.raw("Echo", b"\x0a\x7fshort")
        inner = pb.Inner()
        for _ in range(80):
            inner = pb.Inner(inner=inner)
        with status(Code.RESOURCE_EXHAUSTED, "is nested too deeply"):
            stub.call("Echo", inners=[inner])
        with status(Code.RESOURCE_EXHAUSTED, "more than 65536 elements"):
            stub.call("Echo", inners=[pb.Inner(numbers=range(70000))])


def test_bad_response_is_named_by_its_field(server):
    with server.channel() as stub:
        assert stub.call("Echo", raw_text="grüße".encode()).text == "grüße"
        with status(Code.INTERNAL, "the response: field `text` is not valid UTF-8"):
            stub.call("Echo", raw_text=b"\xff")


def test_deadline_ends_the_call_and_not_the_job_and_the_retry_joins(server):
    with server.channel() as stub:
        with status(Code.DEADLINE_EXCEEDED):
            stub.call("Sleep", key="v1", ms=1500 * SLOW, timeout=0.2)
        assert server.stats()["busy"] == 1
        # Again: and it has not begun anew, since it is the first call's serial that comes back.
        with status(Code.DEADLINE_EXCEEDED):
            stub.call("Sleep", key="v1", ms=1500 * SLOW, timeout=0.2)
        begun = time.monotonic()
        assert stub.call("Sleep", key="v1", ms=1500 * SLOW).serial == 1
        assert time.monotonic() - begun < 1.45 * SLOW
        # When it is over, the same call is a new one.
        assert stub.call("Sleep", key="v1", ms=1500 * SLOW).serial == 2


def test_cancelled_call_goes_on_and_the_retry_joins_from_another_connection(server):
    with server.channel() as stub, server.channel() as other:
        call = stub.start("Sleep", key="v1", ms=1500 * SLOW)
        server.wait_stats(lambda s: s["busy"] == 1)
        call.cancel()
        end = time.monotonic() + 10
        while True:  # until the server has heard of it
            try:
                assert other.call("Sleep", key="v1", ms=1500 * SLOW).serial == 1
                break
            except grpc.RpcError as e:
                assert e.code() == Code.ABORTED and time.monotonic() < end
    assert server.stats()["done"]["OK"] == 1


def field(number, data):
    """A field with a length, of less than 128 bytes."""
    return bytes([number << 3 | 2, len(data)]) + data


def labels(number, *pairs):
    return b"".join(field(number, field(1, k) + field(2, v)) for k, v in pairs)


def test_retry_joins_however_its_maps_are_ordered(server):
    """Clients in Go write maps in another order each time."""
    job = b"\x0a\x02v1\x10" + bytes([0x80 | (1500 * SLOW) & 0x7f, 1500 * SLOW >> 7])

    def inner(key, *pairs):
        return field(5, bytes([1 << 3, key]) + field(2, labels(2, *pairs)))
    a, b, c = (b"a", b"1"), (b"b", b"2"), (b"c", b"")
    first = job + labels(4, a, b, c) + inner(1, a, b) + inner(2, c) + inner(3)
    again = inner(3) + inner(2, c) + labels(4, c, a, b) + inner(1, b, a) + job
    assert pb.SleepRequest.FromString(first) == pb.SleepRequest.FromString(again)
    other = job + labels(4, a, b, (b"c", b"3")) + inner(1, a, b) + inner(2, c) + inner(3)
    with server.channel() as stub:
        with status(Code.DEADLINE_EXCEEDED):
            stub.raw("Sleep", first, timeout=0.2)
        with status(Code.ABORTED, "`v1` is busy"):
            stub.raw("Sleep", other)
        assert stub.raw("Sleep", again).serial == 1


def test_client_that_disconnects_leaves_its_job_to_be_joined(server):
    with server.channel() as stub:
        call = stub.start("Sleep", key="v1", ms=1500 * SLOW)
        server.wait_stats(lambda s: s["busy"] == 1)
    del call
    with server.channel() as stub:
        end = time.monotonic() + 10
        while True:
            try:
                assert stub.call("Sleep", key="v1", ms=1500 * SLOW).serial == 1
                break
            except grpc.RpcError as e:
                assert e.code() == Code.ABORTED and time.monotonic() < end


def seconds_busy(stub, method):
    """For how long v1 has been busy, as a refused call tells; None: the job has not begun."""
    with pytest.raises(grpc.RpcError) as e:
        stub.call(method, key="v1", ms=1)
    assert e.value.code() == Code.ABORTED, e.value.details()
    m = re.fullmatch(r"`v1` is busy: Sleep has been running for (\d+) s \(format branch 1\)", e.value.details())
    assert m or "waiting for a worker" in e.value.details(), e.value.details()
    return int(m[1]) if m else None


def test_busy_key_is_aborted_with_what_runs_and_since_when(server):
    with server.channel() as stub:
        call = stub.start("Sleep", key="v1", ms=2500 * SLOW, step="format branch 1")
        server.wait_stats(lambda s: s["busy"] == 1)
        while (before := seconds_busy(stub, "Sleep")) is None:
            time.sleep(0.01)
        time.sleep(1.1)
        assert seconds_busy(stub, "Hang") > before
        # Even the same call, as long as somebody waits for the first.
        with status(Code.ABORTED, "`v1` is busy"):
            stub.call("Sleep", key="v1", ms=2500 * SLOW, step="format branch 1")
        assert stub.call("Sleep", key="v2", ms=1).serial == 2
        assert call.result().serial == 1
        assert stub.call("Sleep", key="v1", ms=1).serial == 3


def test_server_says_at_the_deadline_what_it_is_doing(server):
    # echo_client waits a moment longer than the deadline: it gets the server's answer.
    r = server.client("sleep", "v1", 1000 * SLOW, 100)
    assert r.stdout.startswith("EPROTO DEADLINE_EXCEEDED: the deadline has passed; Sleep has been running"), r
    assert r.stdout.rstrip().endswith("and goes on")


def test_hung_job_loses_its_key_and_its_worker_is_replaced(tmp_path):
    with EchoServer(tmp_path, "--workers", 1, "--hang-ms", 300 * SLOW) as server, server.channel() as stub:
        call = stub.start("Hang", key="v1", ms=3000 * SLOW)
        server.wait_stats(lambda s: s["busy"] == 1)
        with status(Code.ABORTED, "`v1` is busy"):
            stub.call("Hang", key="v1", ms=1)
        with status(Code.ABORTED, "given up, for want of progress: Hang has been running for"):
            call.result()
        assert server.stats()["hung"] == 1
        # One worker was allowed, and it hangs; and the key is free.
        assert stub.call("Sleep", key="v1", ms=1).serial == 1
        # Steps are progress.
        assert stub.call("Sleep", key="v1", ms=900 * SLOW).serial == 2
        server.wait_stats(lambda s: s["hung"] == 0)


def test_hung_jobs_do_not_keep_the_server_from_stopping(tmp_path):
    with EchoServer(tmp_path, "--hang-ms", 200 * SLOW) as server, server.channel() as stub:
        for i in range(3):
            with status(Code.ABORTED, "given up"):
                stub.call("Hang", key=f"v{i}", ms=600000)
        begun = time.monotonic()
        server.stop()
        assert time.monotonic() - begun < 5 * SLOW


def test_queue_is_limited(tmp_path):
    with EchoServer(tmp_path, "--workers", 1, "--max-queue", 2) as server, server.channel() as stub:
        calls = [stub.start("Sleep", ms=800 * SLOW)]
        server.wait_stats(lambda s: s["busy"] == 1)
        time.sleep(0.1 * SLOW)  # it runs: no longer in the queue
        calls += [stub.start("Sleep", ms=1) for _ in range(2)]
        server.wait_stats(lambda s: s["busy"] == 3)
        with status(Code.UNAVAILABLE, "2 requests wait for a worker already"):
            stub.call("Sleep", ms=1)
        assert len([c.result() for c in calls]) == 3


def test_memory_of_all_requests_is_limited(tmp_path):
    with EchoServer(tmp_path, "--max-memory-bytes", 8 * MIB) as server, server.channel() as stub:
        calls = [stub.start("Sleep", key=str(i) + "x" * 2 * MIB, ms=1500 * SLOW) for i in range(4)]
        codes = [c.code() for c in calls]
        assert Code.UNAVAILABLE in codes and Code.OK in codes, codes
        # All of it comes back.
        server.wait_stats(lambda s: s["busy"] == 0)
        assert stub.call("Sleep", key="y" * 2 * MIB, ms=1).serial > 0


def test_many_clients_at_once(server):
    def work(n):
        with server.channel() as stub:
            for i in range(100):
                assert stub.call("Echo", text=f"{n}-{i}").text == f"{n}-{i}"
            futures = [stub.start("Sleep", ms=i % 3) for i in range(100)]
            return len([f.result() for f in futures])

    with concurrent.futures.ThreadPoolExecutor(10) as pool:
        assert list(pool.map(work, range(10))) == [100] * 10
    stats = server.wait_stats(lambda s: s["busy"] == 0)
    assert stats["done"]["OK"] == 2000


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the server's")
def test_memory_stays_small_and_does_not_grow(tmp_path):
    with EchoServer(tmp_path, debug=False) as server:
        def load():
            with server.channel() as stub:
                [f.result() for f in [stub.start("Sleep", ms=1) for _ in range(200)]]
            for _ in range(20):
                with server.channel() as stub:
                    stub.call("Echo", text="x")
            assert server.client("bench", 10000).returncode == 0

        load()
        before = server.rss_kib()
        load()
        after = server.rss_kib()
        assert after <= 6 * 1024 and after - before <= 128, (before, after)


@pytest.mark.skipif(SANITIZED, reason="a sanitizer's memory is not the server's")
def test_memory_of_a_large_message_is_given_back(tmp_path):
    with EchoServer(tmp_path, debug=False) as server:
        for _ in range(3):
            with server.channel(("grpc.max_receive_message_length", -1)) as stub:
                stub.call("Echo", data=b"x" * 4000000)
                stub.call("Echo", fill=20 * MIB)
        end = time.monotonic() + 10
        while server.rss_kib() > 6 * 1024:
            assert time.monotonic() < end, server.rss_kib()
            time.sleep(0.05)
