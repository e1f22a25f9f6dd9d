"""Relays one answer: the engine's bytes to the client, until the engine, the client or the daemon ends it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from enum import StrEnum

import aiohttp

from pdmuxd.daemon.gateway.admission import RETRY_AFTER_S
from pdmuxd.daemon.gateway.delivery import Delivery, TimedPush
from pdmuxd.daemon.gateway.dialects import OPENAI, Dialect, with_texts_as_metadata
from pdmuxd.daemon.gateway.engine_errors import engine_error, refused_in_stream
from pdmuxd.daemon.gateway.errors import Answer, Header, send_answer
from pdmuxd.daemon.gateway.forecast import refused_by_engine
from pdmuxd.daemon.gateway.upstream import Upstream
from pdmuxd.daemon.httpd.asgi import Message, Receive, Send
from pdmuxd.daemon.httpd.pushing import Push
from pdmuxd.daemon.tokens.merge import DONE, MergedStream
from pdmuxd.engine.core.errors import RequestError

_EVENT_STREAM = "text/event-stream"
_PASSED_HEADERS = ("Cache-Control", "Content-Encoding", "Retry-After")
_LAST_WORDS_TIMEOUT_S = 1.0
"""How long a client that does not read may hold up the end of its own failed request."""


class End(StrEnum):
    """Why an exchange ended."""

    COMPLETE = "complete"
    CLIENT_GONE = "client_disconnected"
    ENGINE_LOST = "engine_lost"
    SHUTDOWN = "shutdown"
    TOO_LATE = "first_byte_timeout"
    DEFECT = "defect"


_MESSAGES = {
    End.ENGINE_LOST: "the engine was lost while it worked on this request; send it again",
    End.TOO_LATE: "the engine did not begin to answer in time (data.first_byte_timeout_s, or max_wait_ms)",
    End.SHUTDOWN: "the daemon is shutting down and its time to finish requests is over",
}
_CODES = {
    End.ENGINE_LOST: "engine_lost",
    End.SHUTDOWN: "shutting_down",
    End.TOO_LATE: "first_byte_timeout",
}
_STATUS = {End.ENGINE_LOST: 502, End.SHUTDOWN: 503, End.TOO_LATE: 504}
FIRST_BYTE_TIMEOUT_S = 600.0
"""An answer that is not streamed begins when it is complete, so this is long."""
CLIENT_GONE_STATUS = 499
"""What the log and the metrics say of a request whose client left before any answer."""


class Exchange:
    """Relays one request; `interrupt` may end it early, from the same event loop."""

    def __init__(
        self,
        *,
        rid: str,
        upstream: Upstream,
        send: Send,
        id_headers: tuple[Header, ...],
        on_first_byte: Callable[[], None],
        abortable: bool,
        first_byte_timeout_s: float = FIRST_BYTE_TIMEOUT_S,
        holds_head: bool = False,
        delivery: Delivery | None = None,
        merged: MergedStream | None = None,
        push: Push | None = None,
        headers: Mapping[str, str] | None = None,
        dialect: Dialect = OPENAI,
        retry_after_s: Callable[[str], int] = lambda _: RETRY_AFTER_S,
        waits_for_another: bool = False,
        head_sent: bool = False,
    ) -> None:
        """Prepare one exchange. With `holds_head` the head of a stream waits for its first bytes: an engine
        that ends the request without beginning it is then answered as an error, and not in a stream that was
        opened for it. `merged` is where the scheduler's tokens of the answer arrive; `push` writes them past
        this task. `retry_after_s` says by the cause when such a request may come again. With
        `waits_for_another` the caller tells a client of a lost engine (`finish_early`) that had nothing of
        its answer. `head_sent`: an exchange with an engine that was lost has sent the head of the stream."""
        self.upstream = upstream
        self.rid = rid
        self.end = End.COMPLETE
        self.status = 200 if head_sent else CLIENT_GONE_STATUS
        self.begun_s: float | None = None
        """When the answer began."""
        self._send = send
        self._id_headers = id_headers
        self._told_of_first_byte = on_first_byte
        self._delivery = delivery
        self._merged = merged
        self._push = push
        self._headers = headers
        self._dialect = dialect
        self._retry_after_s = retry_after_s
        self._waits_for_another = waits_for_another
        self._first_byte_timeout_s = first_byte_timeout_s
        self._first_byte_timer: asyncio.TimerHandle | None = None
        self._abortable = abortable
        self._holds_head = holds_head
        self._task: asyncio.Task[object] | None = None
        self._started = head_sent
        self._path = ""
        self._tail = b""

    async def run(self, method: str, path: str, payload: bytes | None, receive: Receive) -> None:
        """Relay until the end; `end` and `status` then say how it went, also when either side failed.

        Raises: RequestError if the engine refuses the request after all, before anything was sent.
        """
        self._task, self._path = asyncio.current_task(), path
        self._first_byte_timer = asyncio.get_running_loop().call_later(
            self._first_byte_timeout_s, self.interrupt, End.TOO_LATE
        )
        watcher = asyncio.create_task(self._watch(receive), name=f"watch-{self.rid}")
        try:
            await self._relay(method, path, payload)
        except asyncio.CancelledError:
            if self.end is End.COMPLETE or self._task is None:
                raise
            self._task.uncancel()
        except (aiohttp.ClientError, OSError):
            if self.end is End.COMPLETE:
                self.end = End.ENGINE_LOST
        finally:
            self._task = None
            self._first_byte_timer.cancel()
            watcher.cancel()
        if self.end is not End.COMPLETE and not self.may_go_elsewhere:
            await self.finish_early()

    def interrupt(self, end: End) -> None:
        """End the exchange now because of `end`; the first cause wins."""
        if self._task is not None and self.end is End.COMPLETE:
            self.end = end
            self._task.cancel()

    def _on_first_byte(self) -> None:
        if self._first_byte_timer is not None:
            self._first_byte_timer.cancel()
        self.begun_s = time.monotonic()
        self._told_of_first_byte()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        if not self._has_told_end():
            self.interrupt(End.CLIENT_GONE)

    def _has_told_end(self) -> bool:
        """Whether the client has the last event of its stream; OpenAI's clients close the connection then."""
        merged = self._merged
        if merged is not None and merged.has_end:
            return not merged.held_bytes
        return self._tail.endswith(DONE)

    async def _relay(self, method: str, path: str, payload: bytes | None) -> None:
        response = await self.upstream.open(method, path, payload, self._headers)
        try:
            content_type = response.headers.get("Content-Type", "application/octet-stream")
            if content_type.startswith(_EVENT_STREAM):
                await self._stream(response, content_type)
            else:
                await self._whole(response, content_type)
        finally:
            # Does nothing once the answer was read to its end; otherwise it closes the connection, which is
            # what tells the engine.
            response.close()

    async def _stream(self, response: aiohttp.ClientResponse, content_type: str) -> None:
        headers = [(b"content-type", content_type.encode()), *self._passed(response)]
        start = {"type": "http.response.start", "status": response.status, "headers": headers}
        if not self._holds_head:
            await self._begin(start)
        async with aclosing(self._chunks(response)) as chunks:
            held = await self._relay_chunks(chunks, start)
        if not self._started:
            self._raise_if_refused(held)
            refused = refused_in_stream(held, self._path)
            if refused is not None:
                raise refused
            if self._dialect.is_empty(held):
                raise self._not_begun()
            await self._begin(start)
        await self._send({"type": "http.response.body", "body": held})

    async def _relay_chunks(self, chunks: AsyncIterator[bytes], start: Message) -> bytes:
        """Pass on the parts of the answer. Returns what was held back, if the answer never began."""
        first, delivery, dialect = True, self._delivery, self._dialect
        held = b""
        async for chunk in chunks:
            if first:
                chunk = held + chunk
                if dialect.is_preamble(chunk):
                    held = chunk
                    continue
                held = b""
                if not self._started:
                    self._raise_if_refused(chunk)
                    await self._begin(start)
                self._on_first_byte()
                first = False
                if self._merged is not None and self._push is not None:
                    self._merged.outbox.use_writer(TimedPush(self._push, delivery))
            self._tail = chunk
            if delivery is None or not dialect.has_tokens(chunk):
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
                continue
            delivery.begins()
            await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
            delivery.written()
        return held

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        """The parts of the engine's answer, with the tokens that its scheduler sends straight here."""
        merged = self._merged
        if merged is None or response.status != 200:
            async for chunk in response.content.iter_any():
                yield chunk
            return
        reading = asyncio.create_task(_read_into(merged, response), name=f"read-{self.rid}")
        try:
            while chunk := await merged.outbox.take():
                yield chunk
        finally:
            reading.cancel()
            merged.outbox.use_writer(None)

    async def _begin(self, start: Message) -> None:
        if self._started:
            return
        self.status, self._started = int(start["status"]), True
        await self._send(start)

    def _not_begun(self) -> RequestError:
        return RequestError(
            "the engine has not begun this request",
            status=503,
            code="not_begun",
            retry_after_s=self._retry_after_s("max_wait"),
        )

    def _raise_if_refused(self, answer: bytes) -> None:
        refused = refused_by_engine(answer, self._retry_after_s)
        if refused is not None:
            raise refused

    async def _whole(self, response: aiohttp.ClientResponse, content_type: str) -> None:
        """Hold an answer that is no stream until it is whole: losing the engine still gives a clean error."""
        body = await response.read()
        self._raise_if_refused(body)
        if self._dialect.hides_refusals and response.status == 503:
            raise self._not_begun()
        if response.status >= 400:
            raise engine_error(response.status, body, self._path)
        self._on_first_byte()
        self.status = response.status
        self._task = None  # from here on there is nothing left to interrupt
        answer = Answer(
            status=response.status,
            body=with_texts_as_metadata(self._path, body),
            headers=tuple(self._passed(response)),
            content_type=content_type.encode(),
        )
        await send_answer(self._send, answer)

    def _passed(self, response: aiohttp.ClientResponse) -> list[Header]:
        given = ((name, response.headers.get(name)) for name in _PASSED_HEADERS)
        passed = [(name.lower().encode(), value.encode()) for name, value in given if value is not None]
        return [*self._id_headers, *passed]

    @property
    def may_go_elsewhere(self) -> bool:
        """Whether the engine was lost before the client had more of its answer than the head of a stream,
        and is not told yet."""
        return self.end is End.ENGINE_LOST and self.begun_s is None and self._waits_for_another

    @property
    def head_sent(self) -> bool:
        """Whether the client has the head of its answer, so that an error can only be an event."""
        return self._started

    async def finish_early(self) -> None:
        """Tell the client that there is no answer, or that it ends here."""
        if self._abortable and self.end is not End.ENGINE_LOST:
            self.upstream.abort(self.rid)
        if self.end is not End.CLIENT_GONE:
            await self.say_last(_MESSAGES[self.end], _CODES[self.end])

    async def say_last(self, message: str, code: str) -> None:
        """Tell the client why there is no answer, or no more of it."""
        # The server closes the connection of an answer that was left incomplete.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS_TIMEOUT_S):
                await self._last_words(message, code)

    async def _last_words(self, message: str, code: str) -> None:
        if self._started:
            # An event that was cut in the middle is closed first, so that ours is read as one of its own.
            closing = b"" if not self._tail or self._tail.endswith(b"\n\n") else b"\n\n"
            event = closing + self._dialect.error_event(message, code=code)
            await self._send({"type": "http.response.body", "body": event})
            return
        self.status = _STATUS[self.end]
        body = self._dialect.error_body(message, status=self.status, code=code)
        headers = ((b"retry-after", b"1"), *self._id_headers)
        await send_answer(self._send, Answer(status=self.status, body=body, headers=headers))


async def _read_into(merged: MergedStream, response: aiohttp.ClientResponse) -> None:
    try:
        async for chunk in response.content.iter_any():
            await merged.feed(chunk)
    except (aiohttp.ClientError, OSError) as error:
        merged.fail(error)
    else:
        merged.close()
