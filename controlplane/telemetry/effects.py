"""What changes did: edits of targets, of policy or profile, with the minute before and the time since.

What ended since a change is counted, whenever it began; after less than a minute nothing is compared, and
after five the comparison is final. All of it is in memory, as the windows are; whoever keeps it over a
restart waits for `has_news`, and a restart ends a comparison as another change does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from pdmuxd.controlplane.telemetry import standings
from pdmuxd.controlplane.telemetry.attainment import MINUTE_S, Attainment
from pdmuxd.controlplane.telemetry.counts import CountWindow
from pdmuxd.controlplane.telemetry.judged import JudgedRequest
from pdmuxd.controlplane.telemetry.standings import COLUMNS, MAX_TENANTS, Measured, Standing, Tally, sm_use
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.link.messages import IterationRecord

LEAST_S = MINUTE_S
MOST_S = 300.0
KEPT = 16
READ_AT_ONCE = 20
"""Tenants that are read each tenth of a second, which takes 1 to 2 ms."""
FIRST_READ = 5
"""Of these, at once with a change: where tenants are few it is all."""
TOLD_AT_ONCE = 10

REPLAY_EVERY_S = 20.0
"""While a change is measured: the last one is kept."""

Change = tuple[str, str | None, str, Slo | str | None]
"""Kind, tenant, text, and the targets or the policy before, where the change is of one of them."""
State = Literal["too_early", "measuring", "measured", "overtaken"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedTenant:
    """Shares in time that a tenant's requests since are forecast to get with what was, and with what is."""

    requests: int
    ttft_before: float | None
    ttft_after: float | None
    tbt_before: float | None
    tbt_after: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """The same requests under both settings, or why not: what the change did, apart from the load."""

    requests: int = 0
    tenants: Mapping[str, ReplayedTenant] = field(default_factory=dict)
    why_not: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """One change and what came of it."""

    at_s: float
    kind: str
    """`slo`, `policy` or `profile`."""
    tenant: str | None
    text: str
    is_mixed: bool
    """Another change, or an engine's start, was in the minute before."""
    before: Measured
    state: State = "too_early"
    after: Measured | None = None
    was: Slo | str | None = None
    """The targets or the policy before."""
    replay: Replay | None = None


class Effects:
    """Fed in the daemon's event loop; `all` is asked there too.

    `clock` is Unix time and must not go back. `tenants` is how each stands; `waiting` counts what is open.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        tenants: Mapping[str, Attainment],
        waiting: Callable[[float], Mapping[str, OpenCounts]],
    ) -> None:
        self._clock = clock
        self._tenants = tenants
        self._waiting = waiting
        self._window = CountWindow(COLUMNS, slots=12, slot_s=MINUTE_S / 12)
        self._effects: deque[Effect] = deque(maxlen=KEPT)
        self._open: list[Effect] = []
        """The last change, or the several made at once."""
        self._sums = [0] * COLUMNS
        self._tallies: dict[str, Tally] = {}
        self._changed_s: float | None = None
        self._next_s = 0.0
        """When a replay is due."""
        self._unread: deque[Iterator[None]] = deque()
        """Of how tenants stood before each of the last changes, what was not read yet."""
        self.has_news = asyncio.Event()
        """Set when a comparison begins or ends; who waits for it clears it."""

    @property
    def is_measuring(self) -> bool:
        """Whether what a change does is still being counted."""
        return bool(self._open)

    @property
    def changed_s(self) -> float:
        """When something was changed last; 0 if nothing was since the start."""
        return self._changed_s or 0.0

    def restore(self, effects: Sequence[Effect]) -> None:
        """Take up what was known before this start, newest first; counting goes on for none of it."""
        self._effects.extendleft(_ended(each) for each in effects[: KEPT - len(self._effects)])

    def changed(self, changes: Sequence[Change]) -> None:
        """What was changed at once; how tenants stood is read a little at a time.

        With 500 active tenants that takes 50 ms, and this is the loop that serves their streams.
        """
        if not changes:
            return
        now_s = self._clock()
        waiting, stood = self._waiting(now_s), dict[str, Standing]()
        before = Measured(length_s=MINUTE_S, sms=sm_use(self._window.sums(now_s)), tenants=stood)
        is_mixed = self._changed_s is not None and now_s - self._changed_s < MINUTE_S
        self.interrupt()
        self._unread.append(standings.of_last_minute(self._tenants, waiting, now_s, stood))
        self._open = [
            Effect(at_s=now_s, kind=kind, tenant=tenant, text=text, is_mixed=is_mixed, before=before, was=was)
            for kind, tenant, text, was in changes[:KEPT]
        ]
        for _ in self.read(FIRST_READ):
            pass

    def read(self, most: int | None = None) -> Iterator[None]:
        """Go on reading how tenants stood before changes: one with each step, so many or all."""
        left = most
        while self._unread and left != 0:
            before = self._unread[0]
            for _ in islice(before, left):
                left = None if left is None else left - 1
                yield
            if left != 0 and self._unread and self._unread[0] is before:
                self._unread.popleft()
                self.has_news.set()

    def interrupt(self) -> None:
        """Something happened that ends a comparison: another change, or an engine's start."""
        self._close()
        self._changed_s = self._clock()

    def on_iteration(self, record: IterationRecord) -> None:
        """The engine carried out a decision."""
        self._count(standings.of_iteration(record))

    def on_busy(self, span_s: float, *, prefill_ratio: float, decode_ratio: float) -> None:
        """How busy the SMs were over the last `span_s` seconds."""
        self._count(standings.of_busy(span_s, prefill_ratio=prefill_ratio, decode_ratio=decode_ratio))

    def on_request(self, judged: JudgedRequest) -> None:
        """A request of a known tenant ended."""
        if not self._open:
            return
        tally = self._tallies.get(judged.record.tenant)
        if tally is None:
            if len(self._tallies) >= MAX_TENANTS:
                return
            tally = self._tallies[judged.record.tenant] = Tally()
        tally.add(judged)

    def tick(self) -> None:
        """Once a second: what is long enough is final."""
        if self._open and self._clock() - self._open[0].at_s >= MOST_S:
            self._close()

    def to_replay(self) -> list[Effect]:
        """Effects that are measured and whose replay is old; which are then to be given to `replayed`."""
        if not self._open or (now_s := self._clock()) - max(self._open[0].at_s + LEAST_S, self._next_s) < 0.0:
            return []
        self._next_s = now_s + REPLAY_EVERY_S
        return list(self._open)

    def replayed(self, effect: Effect, replay: Replay) -> None:
        """What was found; of one that is not measured any more it is left."""
        self._open = [
            replace(one, replay=replay) if (one.at_s, one.tenant) == (effect.at_s, effect.tenant) else one
            for one in self._open
        ]

    def all(self) -> list[Effect]:
        for _ in self.read():
            pass
        return [*reversed(self._so_far(is_over=False)), *reversed(self._effects)]

    async def told(self) -> list[Effect]:
        """The same; what is left to be read is read between turns of the loop."""
        for number, _ in enumerate(self.read()):
            if number % TOLD_AT_ONCE == 0:
                await asyncio.sleep(0)
        return self.all()

    def _close(self) -> None:
        self._effects.extend(self._so_far(is_over=True))
        was_measuring, self._open = self.is_measuring, []
        self._sums, self._tallies = [0] * COLUMNS, {}
        if was_measuring:
            self.has_news.set()

    def _so_far(self, *, is_over: bool) -> list[Effect]:
        if not self._open:
            return []
        now_s = self._clock()
        length_s = now_s - self._open[0].at_s
        if length_s < LEAST_S:
            return [replace(each, state="overtaken" if is_over else "too_early") for each in self._open]
        waiting = self._waiting(now_s)
        after = Measured(
            length_s=length_s,
            sms=sm_use(self._sums),
            tenants={
                name: tally.standing(waiting.get(name, NOTHING_OPEN)) for name, tally in self._tallies.items()
            },
        )
        state: State = "measured" if is_over else "measuring"
        return [replace(each, state=state, after=after) for each in self._open]

    def _count(self, counts: Mapping[int, int]) -> None:
        now_s = self._clock()
        for column, count in counts.items():
            self._window.add(column, count, now_s)
            if self._open:
                self._sums[column] += count


def _ended(effect: Effect) -> Effect:
    over: dict[State, State] = {"too_early": "overtaken", "measuring": "measured"}
    return replace(effect, state=over.get(effect.state, effect.state))
