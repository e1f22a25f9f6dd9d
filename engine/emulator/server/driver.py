"""The wall-clock driver: one task that owns the emulated engine and runs it as time passes."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from pdmuxd.engine.core.errors import EngineInvariantError, RequestError
from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.emulator.server.delivery import Deliveries, Inbox, Output
from pdmuxd.engine.emulator.server.planning import Plan
from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.link.messages import Ack, EngineSettings

LATE_S = 0.005
"""Waking up later than this after an event was due is counted as lag; event loops sleep in whole
milliseconds, so less than that is their granularity."""
_HEARTBEAT_S = 0.05
"""While nothing happens, the engine's time stands still for at most so long, which is less than the time
between two heartbeats."""
_SHORTEST_SLEEP_S = 0.001
_ALIVE_S = 5.0

EndListener = Callable[[EmulatedRequest], None]


class WallClockDriver:
    """Runs an engine against the wall clock. All methods are for one event loop.

    The engine's times are seconds since the driver was made. When the machine cannot keep up, everything
    that was due is run at once, the lag is counted, and time goes on: it is never made up for.
    """

    def __init__(
        self, engine: EmulatedEngine, deliveries: Deliveries, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.engine = engine
        self.late_wakeups = 0
        self.lag_s = 0.0
        """Sum of the delays of the late wake-ups."""
        self.draining = False
        self.slo_versions: Mapping[str, int] = {}
        """Per tenant, as of the settings in force."""
        self._deliveries = deliveries
        self._clock = clock
        self._start_s = clock()
        self._sleeper: asyncio.Future[float] | None = None
        self._emptied = asyncio.Event()
        self._failure: EngineInvariantError | None = None
        self._listeners: list[EndListener] = []
        self._last_tick_s: float | None = None

    def now_s(self) -> float:
        return self._clock() - self._start_s

    @property
    def alive(self) -> bool:
        """Whether the loop has turned recently."""
        return self._last_tick_s is not None and self.now_s() - self._last_tick_s < _ALIVE_S

    @property
    def open_requests(self) -> int:
        """Requests that have not ended."""
        return len(self._deliveries.open)

    def catch_up(self) -> None:
        """Run what was due until now: an idle engine's clock stands still between two turns."""
        if self._failure is None:
            with self._defects_stop_the_driver():
                self._advance(self.now_s())

    def on_end(self, listener: EndListener) -> None:
        """Call `listener` for each request soon after it ended."""
        self._listeners.append(listener)

    async def run(self) -> None:
        """Run until cancelled. Raises: EngineInvariantError, also one that another method met before."""
        due_s = self.now_s()
        while True:
            if self._failure is not None:
                raise self._failure
            now_s = self.now_s()
            if now_s - due_s > LATE_S:
                self.late_wakeups += 1
                self.lag_s += now_s - due_s
            self._advance(now_s)
            self._last_tick_s = now_s
            self._deliveries.look_for_daemon()
            now_s = self.now_s()
            sleep_s = min(max(self.engine.next_event_s() - now_s, _SHORTEST_SLEEP_S), _HEARTBEAT_S)
            due_s = await self._sleep(now_s, sleep_s)

    def submit(
        self,
        ids: Sequence[str],
        plans: Sequence[Plan],
        *,
        tenant: str,
        inbox: Inbox,
        targets: RequestTargets | None = None,
        answer_id: str | None = None,
    ) -> list[Output]:
        """Start one request per plan, all of them or none, with `targets` in place of the tenant's.

        The daemon wants the tokens of the answer with that id, if one is given.

        Raises: RequestError 503 while draining, 400 if an id is in use or a request cannot fit into the
        KV pool.
        """
        if self.draining:
            raise refuse(
                "the engine is stopping and takes no new requests", status=503, code="engine_stopping"
            )
        for request_id in ids:
            if request_id in self._deliveries.open:
                raise refuse(f"`rid` {request_id!r} is in use by another request", param="rid")
        now_s = self.now_s()
        outputs = []
        for request_id, plan in zip(ids, plans, strict=True):
            request = EmulatedRequest(
                request_id=request_id,
                tenant=tenant,
                arrival_s=now_s,
                input_tokens=plan.prompt_tokens,
                output_tokens=len(plan.pieces),
                block_keys=plan.block_keys,
                answer_keys=plan.answer_keys,
                own_targets=targets,
            )
            output = self._deliveries.open[request_id] = Output(request, plan, inbox)
            outputs.append(output)
            if answer_id is not None and self._deliveries.direct is not None:
                output.direct = self._deliveries.direct.answer(answer_id, request_id, plan.pieces)
            with self._defects_stop_the_driver():
                self.engine.submit(request, now_s)
            if request.failure is not None:
                self.abort(outputs)
                self._report()
                raise refuse(request.failure, code="kv_capacity_exceeded")
        self._report()
        self._wake()
        return outputs

    def abort(self, outputs: Sequence[Output], error: RequestError | None = None) -> None:
        """End all requests that have not ended; `error` is what their clients are told."""
        if self._failure is not None:
            return
        now_s = self.now_s()
        with self._defects_stop_the_driver():
            for output in outputs:
                if not output.ended:
                    output.error = error
                    self.engine.abort(output.request.request_id, now_s)
        self._report()
        self._wake()

    def abort_id(self, request_id: str) -> bool:
        """End a request by its id, or all of a call's by their common id; False if there is none."""
        outputs = [
            output
            for name, output in self._deliveries.open.items()
            if request_id in (name, name.rpartition("_")[0] or name)
        ]
        self.abort(outputs)
        return bool(outputs)

    def abort_all(self, error: RequestError | None = None) -> None:
        self.abort(list(self._deliveries.open.values()), error)

    async def drain(self, timeout_s: float) -> None:
        """Take no new requests, and wait until none is open, for at most `timeout_s`."""
        self.draining = True
        if self._deliveries.open:
            self._emptied.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._emptied.wait(), timeout_s)

    def apply(self, settings: EngineSettings) -> Ack:
        """Put settings in force; a refusal changes nothing and is in the answer."""
        with self._defects_stop_the_driver():
            self._advance(self.now_s())
            ack = self.engine.apply(settings)
        if ack.error is None:
            self.slo_versions = {each.tenant: each.slo_version for each in settings.tenants}
        self._wake()
        return ack

    @property
    def settings_version(self) -> int:
        return self.engine.settings_version

    def _advance(self, now_s: float) -> None:
        self.engine.advance(now_s)
        self._report()

    def _report(self) -> None:
        self._deliveries.hand_over()
        for request in self._deliveries.take_ended():
            for listener in self._listeners:
                listener(request)
        if not self._deliveries.open:
            self._emptied.set()

    @contextlib.contextmanager
    def _defects_stop_the_driver(self) -> Iterator[None]:
        """An engine that broke an invariant is not called again; `run` raises what it met."""
        try:
            yield
        except EngineInvariantError as error:
            self._failure = error
            self._wake()
            raise

    def _wake(self) -> None:
        """Cut the present sleep short. The task never yields elsewhere, so no news can be missed."""
        if self._sleeper is not None:
            _resolve(self._sleeper, self.now_s())

    async def _sleep(self, now_s: float, sleep_s: float) -> float:
        """Sleep until the time has come or something is new; when that was."""
        loop = asyncio.get_running_loop()
        self._sleeper = loop.create_future()
        # Rounded up to what event loops can sleep, or they wake up just before the event.
        delay_s = math.ceil(sleep_s * 1000.0) / 1000.0
        timer = loop.call_later(delay_s, _resolve, self._sleeper, now_s + sleep_s)
        try:
            return await self._sleeper
        finally:
            timer.cancel()
            self._sleeper = None


def _resolve(sleeper: asyncio.Future[float], due_s: float) -> None:
    if not sleeper.done():
        sleeper.set_result(due_s)
