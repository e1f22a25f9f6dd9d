"""uvicorn's HTTP protocol with limits: of headers, of time, and of what may be left unread.

uvicorn parses with llhttp, which is strict, but bounds neither the size and number of headers nor the time
that a head, a body or an unread answer may take. What is not allowed is refused here, before the application.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from pdmuxd.daemon.httpd import refusals
from pdmuxd.daemon.httpd.arrival import ARRIVED, arrival_s
from pdmuxd.daemon.httpd.connections import Connections
from pdmuxd.daemon.httpd.doors import Shown
from pdmuxd.daemon.httpd.pushing import PUSH, WRITE, Push
from pdmuxd.daemon.httpd.refusals import Refusal, render
from pdmuxd.daemon.httpd.upgrades import head_without_offer

_MAX_PIPELINED = 2
"""Requests that may be sent ahead of answers. Few clients do so, and each costs until it is refused."""
_HEADER_EXTRA_BYTES = 4
"""The colon, the space and the end of a header's line."""
_MAX_DISCARDED_BYTES = 64 * 2**20
"""Of a body that is still sent after its request was answered: many clients read only after sending."""
_LINGER_S = 2.0
"""How long a refused client may go on sending before the connection is closed. Closing at once would
reset it, and the client would lose the answer that says why."""
_OVERHEAD_BYTES = 64 * 1024
_OVERHEAD_PER_BODY_BYTE = 8
"""A chunk of one byte has five bytes around it."""
_BODY_GRACE_S = 1.0
"""The application reads most bodies, and refuses a late one in its own words first."""
_ANTHROPIC = b"/v1/messages"
"""Below this path errors have Anthropic's shape, also those that are told before the application is asked."""
_ABSOLUTE = re.compile(rb"https?://([^/?#@]+)((?:[/?].*)?)", re.IGNORECASE | re.DOTALL)
_UNSAFE_PATH = re.compile(rb"%(?:2f|5c|00)|\\", re.IGNORECASE)


class _RefusedError(Exception):
    """Leaves the parser."""


class LimitedProtocol(HttpToolsProtocol):
    """One connection. It waits, has a request in progress, or both: a second head may come early."""

    def __init__(
        self,
        config: uvicorn.Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        *,
        connections: Connections,
        peer: str,
    ) -> None:
        super().__init__(config, server_state, app_state)
        self.peer = peer
        self.url = b""
        self.timeout_keep_alive = connections.limits.keep_alive_s  # type: ignore[assignment]
        self._gate = connections
        self._limits = connections.limits
        self._refusal: Refusal | None = None
        self._is_deaf = False
        """Whatever else comes is ignored: it is no HTTP."""
        self._in_head = True
        self._in_body = False
        self._offers_upgrade = False
        """Whether the head that came is to be parsed again without its offer of another protocol."""
        self._since_s = connections.clock()
        """When the present head or body began."""
        self._head_bytes = self._received_bytes = self._body_bytes = self._discarded_bytes = 0
        self._answering: RequestResponseCycle | None = None
        """The request that is being answered; `cycle` is the last that came, and may wait for it."""
        self._paused_since_s: float | None = None
        self._closing_since_s: float | None = None
        self._lingers_since_s: float | None = None

    # The connection ------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:  # noqa: ANN401 - the library's type
        """uvicorn's call."""
        super().connection_made(transport)
        self._gate.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """uvicorn's call."""
        self._abandon()
        super().connection_lost(exc)
        self._gate.leave(self.peer, self)

    def evict(self) -> None:
        """Make room for another connection."""
        self._abandon()
        self.transport.abort()

    def check(self, now_s: float) -> None:
        """Close the connection if a head, a body or a reader is too late."""
        limits = self._limits
        if self._lingers_since_s is not None:
            if now_s - self._lingers_since_s > _LINGER_S:
                self.transport.abort()
        elif self.transport.is_closing():
            # Its last bytes may never be read.
            self._closing_since_s = self._closing_since_s or now_s
            if now_s - self._closing_since_s > self._gate.write_timeout_s:
                self._cut(refusals.NOT_READING)
        elif self._paused_since_s is not None and now_s - self._paused_since_s > self._gate.write_timeout_s:
            self._cut(refusals.NOT_READING)
        elif self._in_body and not self.flow.read_paused:
            if now_s - self._since_s > limits.body_timeout_s + _BODY_GRACE_S:
                self._refuse(refusals.BODY_TIMEOUT)
        elif self._in_head and not self._is_busy and now_s - self._since_s > limits.header_timeout_s:
            self._refuse(refusals.HEADER_TIMEOUT)

    def pause_writing(self) -> None:
        """uvicorn's call: the client does not read as fast as is written."""
        super().pause_writing()
        self._paused_since_s = self._gate.clock()

    def resume_writing(self) -> None:
        """uvicorn's call."""
        super().resume_writing()
        self._paused_since_s = None

    # What comes in -------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """uvicorn's call."""
        if self._is_deaf or self.transport.is_closing():
            self._discard(len(data))
            return
        self._unset_keepalive_if_required()
        was_in_head, was_in_body, head_of = self._in_head, self._in_body, self.headers
        if not was_in_head and not was_in_body:
            self._begin_head()
        try:
            self._feed(data)
            if was_in_head and self._in_head and self.headers is head_of:
                self._count_head(len(data))  # the parser does not report a header that has not ended
            elif was_in_body and self._in_body and self.headers is head_of:
                # Else most of it may be of the body before, of a request that was answered early.
                self._count_body(len(data))
        except (httptools.HttpParserError, _RefusedError, MemoryError) as error:
            # The parser wraps what its callbacks raise in an error of its own.
            is_out = isinstance(error, MemoryError) or isinstance(error.__context__, MemoryError)
            other = refusals.OUT_OF_MEMORY if is_out else refusals.MALFORMED
            self._on_malformed(self._refusal or other)

    def _feed(self, data: bytes) -> None:
        """Parse, and go on in HTTP/1.1 behind the head of a request that offers another protocol."""
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as offer:
            head = head_without_offer(
                self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers
            )
            rest = data[offer.args[0] :]
            self._offers_upgrade = False
            # A parser that has seen an offer parses nothing more.
            self.parser = httptools.HttpRequestParser(self)
            self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn's
            self.parser.feed_data(head)
            if rest:
                self._feed(rest)

    def on_message_begin(self) -> None:
        """The parser's call."""
        super().on_message_begin()
        self._begin_head()

    def on_url(self, url: bytes) -> None:
        """The parser's call."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """The parser's call, also for what follows a body in chunks."""
        self._count_head(len(name) + len(value) + _HEADER_EXTRA_BYTES)
        if len(self.headers) >= self._limits.max_headers:
            self._raise(refusals.HEADERS_TOO_LARGE)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The parser's call."""
        self._check_head()
        self._offers_upgrade = self.parser.should_upgrade()
        if self._offers_upgrade:
            return
        self._look()
        if len(self.pipeline) >= _MAX_PIPELINED:
            self._raise(refusals.PIPELINED)
        self._in_head, self._in_body = False, True
        self._since_s = self._gate.clock()
        self._received_bytes = self._body_bytes = 0
        super().on_headers_complete()
        self._gate.set_waiting(self, waits=False)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:  # noqa: ANN401 - the library's
        self._answering = cycle
        cycle.scope["extensions"] = {PUSH: {WRITE: Push(cycle)}}

        async def unless_gone(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 - the library's
            # What came with the request may have ended the connection before the task's first turn.
            if not cycle.disconnected:
                try:
                    await app(scope, receive, send)
                finally:
                    # It holds the cycle, and the cycle holds it: only a collection would free the two.
                    cycle.scope.pop("extensions", None)

        super()._start_asgi_task(cycle, unless_gone)

    def on_body(self, body: bytes) -> None:
        """The parser's call."""
        self._body_bytes += len(body)
        if self.cycle.response_complete:
            self._discard(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The parser's call."""
        if self._offers_upgrade:
            return
        self._in_body = False
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope[ARRIVED] = arrival_s(self.transport)
        super().on_message_complete()
        self._wait_if_idle()

    def on_response_complete(self) -> None:
        """uvicorn's call."""
        super().on_response_complete()
        # The time of the next head starts now: reading may have been paused until here.
        self._since_s = self._gate.clock()
        self._wait_if_idle()

    # Its limits ----------------------------------------------------------------------------------------

    @property
    def _is_busy(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _begin_head(self) -> None:
        if not self._in_head:
            self._since_s = self._gate.clock()
        self._in_head, self._head_bytes = True, 0

    def _wait_if_idle(self) -> None:
        if not self._is_busy and not self.pipeline and not self.transport.is_closing():
            self._gate.set_waiting(self, waits=True)

    def _count_head(self, more_bytes: int) -> None:
        self._head_bytes += more_bytes
        if self._head_bytes > self._limits.max_header_bytes:
            self._raise(refusals.HEADERS_TOO_LARGE)

    def _count_body(self, received_bytes: int) -> None:
        self._received_bytes += received_bytes
        allowed_bytes = _OVERHEAD_BYTES + (1 + _OVERHEAD_PER_BODY_BYTE) * self._body_bytes
        if self._received_bytes > allowed_bytes:
            self._raise(refusals.TOO_MUCH_OVERHEAD)

    def _check_head(self) -> None:
        """Refuse heads that HTTP forbids, and forms that no client needs but attacks on proxies have used."""
        version = self.parser.get_http_version()
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and version != "1.0") or b"" in hosts:
            self._raise(refusals.BAD_HOST)
        encodings = [value for name, value in self.headers if name == b"transfer-encoding"]
        if encodings and (len(encodings) > 1 or encodings[0].lower() != b"chunked" or version == "1.0"):
            self._raise(refusals.BAD_ENCODING)
        if self.parser.get_method() == b"CONNECT":
            self._raise(refusals.BAD_TARGET)
        if (absolute := _ABSOLUTE.fullmatch(self.url)) is not None:
            # RFC 9112, 3.2.2: served as its path, and its host stands for that of the header.
            self.url = absolute[2] if absolute[2].startswith(b"/") else b"/" + absolute[2]
            for place, (name, _) in enumerate(self.headers):
                if name == b"host":
                    self.headers[place] = (name, absolute[1])
        path = self.url.partition(b"?")[0]
        if not path.startswith(b"/") or _UNSAFE_PATH.search(path):
            self._raise(refusals.BAD_TARGET)

    def _look(self) -> None:
        """Refuse one wrong key too many; connections with a good one are counted apart."""
        door = self._gate.door
        if door is None:
            return
        shown = door.look(self.peer, self.url.partition(b"?")[0], self.headers)
        if shown is Shown.TOO_MANY:
            self._raise(refusals.WRONG_KEYS)
        if shown is Shown.GOOD_KEY:
            self._gate.prove(self)

    def _raise(self, refusal: Refusal) -> None:
        self._refusal = refusal
        raise _RefusedError

    # The end -------------------------------------------------------------------------------------------

    def _on_malformed(self, refusal: Refusal) -> None:
        if self.pipeline:
            self._cut(refusal.cause)
        elif self._is_busy and not self._in_body:
            # The answer to an earlier request is on its way; it is completed, and is the last.
            self._gate.note(self.peer, refusal.cause)
            self._is_deaf = True
            self.cycle.keep_alive = False
        else:
            self._refuse(refusal)

    def _refuse(self, refusal: Refusal) -> None:
        """Say why, if no answer has begun, and close."""
        self._gate.note(self.peer, refusal.cause)
        self._is_deaf = True
        begun = self._is_busy and self.cycle.response_started
        self._abandon()
        if begun:
            self.transport.abort()
        elif refusal is refusals.WRONG_KEYS:
            self._gate.penalize(self, partial(self._say_last, refusal))
        else:
            self._gate.set_waiting(self, waits=True)
            self._say_last(refusal)

    def _say_last(self, refusal: Refusal) -> None:
        if self.transport.is_closing():
            return
        is_anthropic = self._gate.style == "openai" and self.url.startswith(_ANTHROPIC)
        self.transport.write(render(refusal, "anthropic" if is_anthropic else self._gate.style))
        self.transport.write_eof()
        self._lingers_since_s = self._gate.clock()

    def _discard(self, more_bytes: int) -> None:
        self._discarded_bytes += more_bytes
        if self._discarded_bytes > _MAX_DISCARDED_BYTES:
            self._cut(refusals.UNREAD_BODY)

    def _cut(self, cause: str) -> None:
        self._gate.note(self.peer, cause)
        self._abandon()
        self.transport.abort()

    def _abandon(self) -> None:
        """Tell the application that its client has gone: it must not write to a connection that is closed."""
        self._is_deaf = True
        self.pipeline.clear()
        for cycle in (self._answering, self.cycle):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()
