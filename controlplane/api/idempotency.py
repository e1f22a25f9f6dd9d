"""`Idempotency-Key`: a POST that is sent again is answered as it was the first time, and done once.

Kept in memory, for a day at most and within bounds, and lost when the daemon ends: answers may hold secrets,
which are stored nowhere. Only what succeeded is kept; what was refused changed nothing, and is tried again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.engine.core.errors import InvalidValueError

HEADER = "Idempotency-Key"
REPLAYED_HEADER = "Idempotency-Replayed"
KEY_MAX = 200
KEPT_S = 86_400.0
MOST_ANSWERS = 1_000
MOST_BYTES = 8 * 1024 * 1024
"""The answer to a POST has some hundred bytes."""
ALLOWED = f"1 to {KEY_MAX} visible ASCII characters"
PARAMETER = {
    "name": HEADER,
    "in": "header",
    "required": False,
    "description": f"A text of your own for this change; sent again with it, the call is answered as before "
    f"and nothing is done twice, for a day or until the daemon ends: {ALLOWED}.",
    "schema": {"type": "string", "maxLength": KEY_MAX, "pattern": "^[!-~]+$"},
}
Name = tuple[str, str, str]
"""The kind and name of who asks, and the key: nobody is answered with what somebody else was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    at_s: float
    request_sha256: bytes
    status: int
    headers: tuple[tuple[bytes, bytes], ...] = field(repr=False)
    body: bytes = field(repr=False)


class IdempotentAnswers:
    """The answers that may be asked for again; used on the event loop alone."""

    def __init__(self, *, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._answers: OrderedDict[Name, _Answer] = OrderedDict()
        self._bytes = 0
        self._at_work: dict[Name, asyncio.Event] = {}

    async def answer(self, request: Request, handle: Callable[[Request], Awaitable[Response]]) -> Response:
        """The answer of `handle`, or the one that this key got before. Raises: InvalidValueError."""
        key = request.headers.get(HEADER)
        if key is None:
            return await handle(request)
        if not (0 < len(key) <= KEY_MAX and all("!" <= letter <= "~" for letter in key)):
            raise InvalidValueError(HEADER, f"{HEADER} is {key[:40]!a}; allowed are {ALLOWED}")
        caller = caller_of(request.scope)
        name = (caller.kind, caller.name, key)
        digest = await _digest(request)
        while (working := self._at_work.get(name)) is not None:
            await working.wait()
        kept = self._kept(name)
        if kept is not None:
            return _again(kept, digest)
        self._at_work[name] = asyncio.Event()
        try:
            response = await handle(request)
            self._keep(name, digest, response)
        finally:
            self._at_work.pop(name).set()
        return response

    def _kept(self, name: Name) -> _Answer | None:
        oldest_s = self._now_s() - KEPT_S
        while self._answers and next(iter(self._answers.values())).at_s < oldest_s:
            self._forget()
        return self._answers.get(name)

    def _keep(self, name: Name, digest: bytes, response: Response) -> None:
        body: Any = getattr(response, "body", None)  # a stream has none
        if not isinstance(body, bytes) or not 200 <= response.status_code < 300 or len(body) > MOST_BYTES:
            return
        self._answers[name] = _Answer(
            at_s=self._now_s(),
            request_sha256=digest,
            status=response.status_code,
            headers=tuple(response.raw_headers),
            body=body,
        )
        self._bytes += len(body)
        while len(self._answers) > MOST_ANSWERS or self._bytes > MOST_BYTES:
            self._forget()

    def _forget(self) -> None:
        _, oldest = self._answers.popitem(last=False)
        self._bytes -= len(oldest.body)


async def _digest(request: Request) -> bytes:
    whole = hashlib.sha256()
    for part in (request.method, request.url.path, request.url.query, request.headers.get("If-Match", "")):
        whole.update(part.encode() + b"\0")
    whole.update(await request.body())
    return whole.digest()


def _again(kept: _Answer, digest: bytes) -> Response:
    if kept.request_sha256 != digest:
        raise InvalidValueError(
            HEADER, f"{HEADER} was used for another call or body; take a new key for each change"
        )
    response = Response(kept.body, kept.status)
    response.raw_headers = [*kept.headers, (REPLAYED_HEADER.lower().encode(), b"true")]
    return response
