"""What the gateway tells a tracer, and how the caller's trace context goes through it (W3C Trace Context).

Without a tracer no span is made, and the caller's context goes to the engine as it came.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Protocol

from pdmuxd.daemon.httpd.asgi import Scope, header

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
_PARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_STATE = re.compile(rb"[\x20-\x7e]{1,512}")
_NO_HEADERS: Mapping[str, str] = {}


def given_context(scope: Scope) -> Mapping[str, str]:
    """The headers of the caller's trace; none if it has none, or in a form that is not W3C's."""
    parent = header(scope, TRACEPARENT.encode())
    if parent is None or _PARENT.fullmatch(parent) is None:
        return _NO_HEADERS
    given = {TRACEPARENT: parent.decode("ascii")}
    state = header(scope, TRACESTATE.encode())
    if state is not None and _STATE.fullmatch(state) is not None:
        given[TRACESTATE] = state.decode("ascii")
    return given


class CallTrace(Protocol):
    """The trace of one request. Its methods are called in the event loop and must neither block nor raise."""

    @property
    def headers(self) -> Mapping[str, str]:
        """What goes to the engine, so that its spans belong to the same trace."""

    def asked(self, *, model: str | None, is_streamed: bool, outputs: int) -> None:
        """The body was read: this is what the request asks for."""

    def sent(self) -> None:
        """The request goes to the engine, for the first time or again."""

    def first_byte(self) -> None:
        """The engine's answer began to arrive."""

    def answered(self, *, status: int, end: str, error: str | None) -> None:
        """The request is over; `error` is the code of the error that the gateway answered, if it did."""


class Tracer(Protocol):
    """Makes a trace for each request."""

    def begin(
        self, scope: Scope, *, rid: str, client_id: str | None, tenant: str, path: str, operation: str
    ) -> CallTrace:
        """A request of a known tenant has arrived."""


class Untraced:
    """A request of which nothing is recorded."""

    __slots__ = ("headers",)

    def __init__(self, headers: Mapping[str, str] = _NO_HEADERS) -> None:
        self.headers = headers

    def asked(self, *, model: str | None, is_streamed: bool, outputs: int) -> None:
        """Do nothing."""

    def sent(self) -> None:
        """Do nothing."""

    def first_byte(self) -> None:
        """Do nothing."""

    def answered(self, *, status: int, end: str, error: str | None) -> None:
        """Do nothing."""


UNTRACED = Untraced()


class NoTracer:
    """Where nothing is traced."""

    def begin(
        self,
        scope: Scope,
        *,
        rid: str,  # noqa: ARG002
        client_id: str | None,  # noqa: ARG002
        tenant: str,  # noqa: ARG002
        path: str,  # noqa: ARG002
        operation: str,  # noqa: ARG002
    ) -> CallTrace:
        """The caller's context goes on as it came."""
        given = given_context(scope)
        return Untraced(given) if given else UNTRACED
