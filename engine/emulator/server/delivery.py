"""How tokens get from the emulated engine to the responses that wait for them.

Only counts travel: which text a token has was planned when its request arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.core.types import Decision
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.emulator.server.direct_tokens import DirectAnswer, DirectTokens
from pdmuxd.engine.emulator.server.planning import Plan
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.loop.requests import refusal_message


class Inbox:
    """Where one HTTP response waits for its outputs: for every token, or only for their ends. One waiter."""

    __slots__ = ("_every_token", "_waiter", "disconnected")

    def __init__(self, *, every_token: bool) -> None:
        self.disconnected = False
        self._every_token = every_token
        self._waiter: asyncio.Future[None] | None = None

    def wake_for(self, *, every_token: bool) -> None:
        """Wake for every token from now on, or no more."""
        self._every_token = every_token

    def token(self) -> None:
        if self._every_token:
            self.wake()

    def wake(self) -> None:
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    def disconnect(self) -> None:
        self.disconnected = True
        self.wake()

    async def changed(self) -> None:
        """Wait for the next `wake`."""
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None


class Output:
    """One request's answer while it is produced."""

    __slots__ = ("direct", "ended", "error", "inbox", "plan", "produced", "request")

    def __init__(self, request: EmulatedRequest, plan: Plan, inbox: Inbox) -> None:
        self.request = request
        self.plan = plan
        self.inbox = inbox
        self.produced = 0
        """Tokens produced so far."""
        self.ended = False
        self.direct: DirectAnswer | None = None
        """Its tokens between the first and the last go straight to the daemon."""
        self.error: RequestError | None = None
        """Why it ended early, if that is an error to its client."""


class Deliveries:
    """The engine's observer: counts tokens per output and wakes who waits for them."""

    def __init__(self, direct: DirectTokens | None = None) -> None:
        self.direct = direct
        self.open: dict[str, Output] = {}
        """Outputs that have not ended, by request id."""
        self._ended: list[EmulatedRequest] = []

    def take_ended(self) -> list[EmulatedRequest]:
        """The requests that ended since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def on_first_token(self, request: EmulatedRequest, now_s: float) -> None:  # noqa: ARG002
        output = self.open[request.request_id]
        output.produced += 1
        if output.direct is not None and self.direct is not None:
            self.direct.begin(output.direct)
            output.inbox.wake()
            return
        output.inbox.token()

    def on_decode_tokens(self, requests: Iterable[EmulatedRequest], now_s: float) -> None:  # noqa: ARG002
        outputs = self.open
        for request in requests:
            output = outputs[request.request_id]
            output.produced += 1
            if output.direct is None or self.direct is None:
                output.inbox.token()
            elif output.produced < len(output.plan.pieces):
                self.direct.token(output.direct, output.produced)

    def hand_over(self) -> None:
        """Hand the tokens of this instant to the daemon; without it they go through HTTP."""
        if self.direct is not None and not self.direct.flush():
            self._take_back()

    def look_for_daemon(self) -> None:
        """Now and then: whether it takes tokens."""
        if self.direct is not None and not self.direct.poll():
            self._take_back()

    def _take_back(self) -> None:
        for output in self.open.values():
            if output.direct is not None:
                output.direct = None
                output.inbox.wake_for(every_token=True)
                output.inbox.wake()

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:  # noqa: ARG002
        """Let the response end, and keep the request for its record."""
        output = self.open.pop(request.request_id)
        output.ended = True
        cause = request.refusal_cause
        if cause is not None:
            output.error = refuse(refusal_message(cause), status=503, code=cause)
        output.inbox.wake()
        self._ended.append(request)

    def on_step(self, decision: Decision, start_s: float, end_s: float) -> None:
        """Ignore: steps are reported as records."""
