"""The responses that wait for the emulated engine, and abort there when their client goes away."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pdmuxd.engine.emulator.server.answers import DONE, Answer, WholeBody
from pdmuxd.engine.emulator.server.delivery import Inbox, Output
from pdmuxd.engine.emulator.server.driver import WallClockDriver
from pdmuxd.engine.emulator.server.refusals import error_event, error_response

_EVENT_STREAM = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class _WaitingResponse(Response):
    """A context that aborts all unfinished requests when it is left, whatever the cause."""

    def __init__(self, driver: WallClockDriver, inbox: Inbox, outputs: Sequence[Output]) -> None:
        super().__init__()
        self._driver = driver
        self._inbox = inbox
        self._outputs = outputs
        self._path = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response. It is cancelled only when the process stops while the client does not read,
        which is no defect."""
        self._path = scope["path"]
        try:
            async with _disconnection(receive, self._inbox):
                with contextlib.suppress(asyncio.CancelledError):
                    await self.respond(scope, receive, send)
        finally:
            self._driver.abort(self._outputs)

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer; return early if the client has gone."""
        raise NotImplementedError


class EventStream(_WaitingResponse):
    """Server-sent events, sent as the engine produces tokens."""

    def __init__(
        self, driver: WallClockDriver, inbox: Inbox, outputs: Sequence[Output], answer: Answer
    ) -> None:
        super().__init__(driver, inbox, outputs)
        self._answer = answer

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        """Send what there is, wait for more, until all outputs have ended."""
        await send({"type": "http.response.start", "status": 200, "headers": _EVENT_STREAM})
        delivered = [0] * len(self._outputs)
        open_outputs = set(range(len(self._outputs)))
        while open_outputs and not self._inbox.disconnected:
            events = self._news(delivered, open_outputs)
            if events:
                await send({"type": "http.response.body", "body": events, "more_body": bool(open_outputs)})
            else:
                await self._inbox.changed()

    def _tokens(self, i: int, output: Output, delivered: int, events: list[bytes]) -> int:
        """What is new of an output; the number of tokens that were then delivered."""
        events.append(self._answer.tokens(i, output, delivered, output.produced))
        return output.produced

    def _first_and_rest(self, i: int, output: Output, delivered: int, events: list[bytes]) -> int:
        """The tokens in between go to the daemon; they come once more, as one event, with the end."""
        if delivered == 0:
            events.append(self._answer.tokens(i, output, 0, 1))
            delivered = 1
        if output.ended and output.produced > delivered:
            events.append(self._answer.at_once(i, output, delivered, output.produced))
            delivered = output.produced
        return delivered

    def _news(self, delivered: list[int], open_outputs: set[int]) -> bytes:
        """Events not sent yet, up to the end of the stream if nothing is left open."""
        events: list[bytes] = []
        for i in sorted(open_outputs):
            output = self._outputs[i]
            if output.produced > delivered[i]:
                tokens = self._tokens if output.direct is None else self._first_and_rest
                delivered[i] = tokens(i, output, delivered[i], events)
            if output.ended:
                open_outputs.discard(i)
                if output.error is not None:
                    open_outputs.clear()
                    return b"".join([*events, error_event(output.error, self._path), DONE])
                events.append(self._answer.ending(i, output))
        if not open_outputs:
            events.append(self._answer.closing(self._outputs))
        return b"".join(events)


class WholeAnswer(_WaitingResponse):
    """One JSON body, sent when all outputs have ended."""

    def __init__(
        self, driver: WallClockDriver, inbox: Inbox, outputs: Sequence[Output], answer: WholeBody
    ) -> None:
        super().__init__(driver, inbox, outputs)
        self._answer = answer

    async def respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        while not all(output.ended for output in self._outputs):
            if self._inbox.disconnected:
                return
            await self._inbox.changed()
        errors = [output.error for output in self._outputs if output.error is not None]
        if errors:
            response = error_response(errors[0], self._path)
        else:
            response = Response(self._answer.whole(self._outputs), media_type="application/json")
        await response(scope, receive, send)


@contextlib.asynccontextmanager
async def _disconnection(receive: Receive, inbox: Inbox) -> AsyncIterator[None]:
    """Tell `inbox` when the client goes away."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        inbox.disconnect()

    watching = asyncio.create_task(watch())
    try:
        yield
    finally:
        watching.cancel()
