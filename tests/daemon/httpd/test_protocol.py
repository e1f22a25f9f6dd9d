"""What a connection may do: each limit on a real socket, and that what is allowed still passes."""

import asyncio
import json

import pytest

from pdmuxd.daemon.httpd.protocol import LimitedProtocol

GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
CLOSE = b"Connection: close\r\n\r\n"


def spied(made, connection_made):
    def spy(self, transport):
        made.append(self)
        connection_made(self, transport)

    return spy


@pytest.mark.parametrize(
    ("head", "status", "cause"),
    [
        (GET + b"a:\r\n" * 200, 431, "headers_too_large"),
        (GET + b"A: " + b"a" * 5000 + b"\r\n\r\n", 431, "headers_too_large"),
        (GET + b"A: " + b"a" * 500_000, 431, "headers_too_large"),
        (b"GET /" + b"a" * 500_000, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n\r\n", 400, "bad_host"),
        (b"GET / HTTP/1.1\r\nHost:\r\n\r\n", 400, "bad_host"),
        (GET + b"Host: y\r\n\r\n", 400, "bad_host"),
        (GET + b"Transfer-Encoding: gzip, chunked\r\n\r\n", 400, "bad_encoding"),
        (GET.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n\r\n", 400, "bad_encoding"),
        (b"GET /v1%2Fmodels HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_target"),
        (b"GET /%5c HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_target"),
        (b"GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_target"),
        (b"GET http://me@evil/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_target"),
        (b"GET ftp://evil/ HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_target"),
        (b"GET http://x/%2F HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_target"),
        (b"CONNECT x:80 HTTP/1.1\r\nHost: x\r\n\r\n", 400, "bad_target"),
        (b"\x16\x03\x01\x02\x00\x01", 400, "malformed"),
        (GET + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n", 400, "malformed"),
        (GET + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "malformed"),
    ],
)
async def test_a_bad_head_is_refused_by_name_and_never_reaches_the_application(serve, head, status, cause):
    server = await serve(max_header_bytes=4096, max_headers=20)
    answer = await server.tell(head)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["code"] == cause
    assert (server.connections.closed, server.app.seen) == ({cause: 1}, [])
    await server.until(lambda: server.connections.count == 0)


@pytest.mark.parametrize(
    "request_head",
    [
        GET + CLOSE,
        GET + b"a: 1\r\n" * 90 + CLOSE,
        GET + b"A: " + b"a" * 30_000 + b"\r\n" + CLOSE,
        b"GET /a%20b?x=%2F HTTP/1.1\r\nHost: x\r\n" + CLOSE,
        b"GET / HTTP/1.0\r\n\r\n",
        GET + b"Upgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n",
        b"GET http://y/a?b HTTP/1.1\r\nHost: x\r\n" + CLOSE,
        b"GET HTTP://y HTTP/1.1\r\nHost: x\r\n" + CLOSE,
    ],
)
async def test_what_is_allowed_passes(serve, request_head):
    server = await serve()
    answer = await server.tell(request_head)
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"ok 0")
    assert not server.connections.closed


async def test_a_body_in_chunks_passes_whatever_the_size_of_the_chunks(serve):
    server = await serve()
    chunks = b"1\r\nx\r\n" * 50_000
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n" + CLOSE
    assert (await server.tell(head + chunks + b"0\r\n\r\n")).endswith(b"ok 50000")


@pytest.mark.parametrize(
    ("rest", "cause"),
    [
        (b"1;" + b"e" * 300_000 + b"\r\nx\r\n", "chunk_overhead"),
        (b"0\r\n" + b"a: b\r\n" * 50_000, "headers_too_large"),
        (b"0\r\na: " + b"b" * 400_000, "chunk_overhead"),
        (b"zz\r\n", "malformed"),
    ],
)
async def test_a_body_is_refused_when_it_has_hardly_any_data(serve, rest, cause):
    server = await serve()
    head = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await server.tell(head + rest)).startswith((b"HTTP/1.1 4", b""))
    await server.until(lambda: server.connections.count == 0)
    assert server.connections.closed == {cause: 1}


async def test_the_rest_of_a_body_that_was_answered_early_does_not_count_for_the_next(serve, monkeypatch):
    made = []
    monkeypatch.setattr(LimitedProtocol, "connection_made", spied(made, LimitedProtocol.connection_made))
    server = await serve()
    reader, writer = await server.connect()
    writer.write(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\nx")
    assert (await reader.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")
    # A busy loop reads up to 256 KiB at once.
    rest = b"x" * 199_999 + b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n" + CLOSE + b"y"
    made[0].data_received(rest)
    writer.write(b"yyyy")
    assert (await server.rest(reader)).endswith(b"ok 5")
    assert not server.connections.closed


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"", "header_timeout"),
        (GET + b"X-A: 1\r\nX", "header_timeout"),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n{", "body_timeout"),
        (GET + b"\r\n" + GET, "header_timeout"),
    ],
)
async def test_a_request_that_does_not_come_to_its_end_is_cut(serve, monkeypatch, sent, cause):
    monkeypatch.setattr("pdmuxd.daemon.httpd.protocol._BODY_GRACE_S", 0.0)
    server = await serve(header_timeout_s=0.1, body_timeout_s=0.1)
    answer = await server.tell(sent)
    assert b"HTTP/1.1 408 " in answer
    assert server.connections.closed == {cause: 1}
    await server.until(lambda: server.connections.count == 0)


async def test_a_refused_connection_is_closed_when_its_client_does_not(serve, monkeypatch):
    monkeypatch.setattr("pdmuxd.daemon.httpd.protocol._LINGER_S", 0.05)
    server = await serve(header_timeout_s=0.1)
    reader, writer = await server.connect()
    writer.write(b"no http\r\n\r\n")
    assert (await server.rest(reader)).startswith(b"HTTP/1.1 400 ")
    await server.until(lambda: server.connections.count == 0)


async def test_an_idle_connection_is_closed_after_its_keep_alive_time(serve):
    server = await serve(keep_alive_s=0.05)
    assert (await server.tell(GET + b"\r\n")).endswith(b"ok 0")
    await server.until(lambda: server.connections.count == 0)
    assert not server.connections.closed


async def test_a_stream_that_nobody_reads_is_cut(serve):
    server = await serve(write_timeout_s=0.1)
    reader, writer = await server.connect()
    reader._transport.pause_reading()
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    async with asyncio.timeout(30):
        await server.app.gone.wait()
    assert server.connections.closed == {"not_reading": 1}
    await server.until(lambda: server.connections.count == 0)


async def test_a_stream_that_is_read_goes_on_beyond_the_time(serve):
    server = await serve(write_timeout_s=0.05)
    reader, writer = await server.connect()
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    for _ in range(100):
        await reader.readexactly(200_000)
    assert not server.connections.closed


async def test_unread_streams_are_cut_soon_when_the_daemon_wants_to_stop(serve):
    server = await serve()
    reader, writer = await server.connect()
    reader._transport.pause_reading()
    writer.write(b"GET /stream HTTP/1.1\r\nHost: x\r\n\r\n")
    await server.until(lambda: server.app.seen)
    server.connections.hurry(0.05)
    async with asyncio.timeout(30):
        await server.app.gone.wait()
    assert server.connections.closed == {"not_reading": 1}


async def test_a_body_that_goes_on_after_its_answer_is_not_read_for_ever(serve, monkeypatch):
    monkeypatch.setattr("pdmuxd.daemon.httpd.protocol._MAX_DISCARDED_BYTES", 300_000)
    server = await serve()
    reader, writer = await server.connect()
    writer.write(b"POST /early HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n")
    assert (await reader.readuntil(b"ok 0")).startswith(b"HTTP/1.1 200 ")

    async def pour():
        for _ in range(1000):
            writer.write(b"x" * 65536)
            await writer.drain()

    with pytest.raises(ConnectionError):
        await pour()
    assert server.connections.closed == {"unread_body": 1}


async def test_requests_ahead_of_their_answers_are_answered_in_turn_up_to_a_limit(serve):
    server = await serve()
    assert (await server.tell(GET + b"\r\n" + GET + b"\r\n" + GET + CLOSE)).count(b"ok 0") == 3
    await server.tell((GET + b"\r\n") * 100)
    await server.until(lambda: server.connections.count == 0)
    assert server.connections.closed == {"pipelined": 1}


async def test_an_answer_is_completed_when_what_follows_its_request_is_no_http(serve):
    server = await serve()
    answer = await server.tell(GET + b"\r\n\x00\x00\x00\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.endswith(b"ok 0")


OFFER = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"


@pytest.mark.parametrize("pieces", [1, 2, 7, 10_000])
@pytest.mark.parametrize("framing", [b"Content-Length: 11\r\n\r\nhello there", b"Transfer-Encoding: chunked"])
async def test_a_body_is_read_when_another_protocol_is_offered(serve, pieces, framing):
    """What Java's HttpClient sends first, in packets of any size; the connection is kept for the next one."""
    server = await serve()
    body = framing if b"Length" in framing else framing + b"\r\n\r\nb\r\nhello there\r\n0\r\n\r\n"
    sent = b"POST / HTTP/1.1\r\nHost: x\r\n" + OFFER + body
    second = b"POST /second HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n" + CLOSE + b"abc"
    reader, writer = await server.connect()
    size = -(-len(sent) // pieces)
    for start in range(0, len(sent), size):
        writer.write(sent[start : start + size])
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.readuntil(b"ok 11")).startswith(b"HTTP/1.1 200 ")
    writer.write(second)
    assert (await server.rest(reader)).endswith(b"ok 3")
    assert server.app.seen == ["/", "/second"]
    assert not server.connections.closed


async def test_an_offer_is_made_with_each_request_of_a_connection(serve):
    server = await serve()
    one = b"POST / HTTP/1.1\r\nHost: x\r\n" + OFFER + b"Content-Length: 2\r\n\r\nhi"
    reader, writer = await server.connect()
    for _ in range(3):
        writer.write(one)
        await reader.readuntil(b"ok 2")
    writer.transport.abort()


async def test_no_limit_is_passed_by_offering_another_protocol(serve):
    server = await serve(max_headers=20)
    head = b"POST / HTTP/1.1\r\nHost: x\r\n" + OFFER
    assert (await server.tell(head + b"a: b\r\n" * 30 + b"\r\n")).startswith(b"HTTP/1.1 431 ")
    both = b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert (await server.tell(head + both)).startswith(b"HTTP/1.1 400 ")
    assert server.app.seen == []
