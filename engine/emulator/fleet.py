"""A fleet: several emulated engines in one virtual clock, and the rule that routes requests to them.

`pla-spatial:N` keeps short and long prefills on instances of their own and moves instances between the two
pools as pressure asks (PLA-Serve section 3.2, spatial disaggregation). `round-robin:N` is its baseline.
A move changes where new requests go; an instance finishes what it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pdmuxd.engine.core.crossover import is_short
from pdmuxd.engine.core.errors import PolicyError
from pdmuxd.engine.core.policies.registry import FLEET_POLICY, parse_policy
from pdmuxd.engine.core.pressure import Pool, PressureRules, PressureState, control
from pdmuxd.engine.core.types import EngineLimits
from pdmuxd.engine.emulator.counters import EngineCounters, summed
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.instance import FleetInstance
from pdmuxd.engine.emulator.observer import EngineObserver, NullObserver
from pdmuxd.engine.emulator.profile import Profile
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.loop.requests import Target

ROUND_ROBIN = "round-robin"
INSTANCE_RANGE = (2, 64)
DEFAULT_INSTANCE_POLICY = "pla/muxwise"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSpec:
    """A parsed fleet policy."""

    text: str
    rule: str
    instances: int
    instance_policy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMove:
    """An instance changed its pool."""

    at_s: float
    instance: int
    to: Pool


def is_fleet(spec: str) -> bool:
    """Whether a specification names a fleet."""
    return spec.strip().partition("/")[0].partition(":")[0] in (FLEET_POLICY, ROUND_ROBIN)


def parse_fleet(spec: str) -> FleetSpec:
    """Parse `pla-spatial:N[/POLICY]` or `round-robin:N[/POLICY]`; POLICY is what each instance runs.

    Raises: PolicyError naming what is allowed.
    """
    head, slash, inner = spec.strip().partition("/")
    rule, _, count = head.partition(":")
    low, high = INSTANCE_RANGE
    if not is_fleet(spec):
        raise PolicyError(
            f"unknown fleet policy {rule!r}; known are {FLEET_POLICY}:N[/POLICY], {ROUND_ROBIN}:N[/POLICY]"
        )
    if not (count.isascii() and count.isdigit() and low <= int(count) <= high):
        raise PolicyError(f"fleet policy {rule}: {count!r} instances; give {low} to {high}, as in {rule}:4")
    instance_policy = inner if slash else DEFAULT_INSTANCE_POLICY
    parse_policy(instance_policy)
    return FleetSpec(text=spec.strip(), rule=rule, instances=int(count), instance_policy=instance_policy)


class EmulatedFleet:
    """N engines that answer as one; `drive` replays a trace on it. Times are seconds and never go back.

    Prompts are short or long when they arrive, by what an instance has not cached of them against the
    crossover's floor: one that an instance of the short pool finds short there goes to that pool. Within a
    pool the instance gets a request that is the least loaded with it. Raises: PolicyError.
    """

    def __init__(
        self,
        *,
        profile: Profile,
        policy: str,
        rules: PressureRules | None = None,
        observer: EngineObserver | None = None,
        limits: EngineLimits | None = None,
        block_tokens: int = 16,
    ) -> None:
        self.spec = parse_fleet(policy)
        self.profile = profile
        self.now_s = 0.0
        self.moves: list[PoolMove] = []
        self._rules = rules or PressureRules()
        listener = observer or NullObserver()
        count = self.spec.instances
        self._instances = [
            FleetInstance(profile, self.spec.instance_policy, listener, limits, block_tokens)
            for _ in range(count)
        ]
        self._state = PressureState(short=count // 2, long=count - count // 2)
        for instance in self._instances[: self._state.short]:
            instance.pool = Pool.SHORT
        self._is_spatial = self.spec.rule == FLEET_POLICY
        self._tick_s = self._rules.period_s
        self._at: dict[str, FleetInstance] = {}
        self._submitted = 0

    @property
    def total_sms(self) -> int:
        return self.profile.device.total_sms * self.spec.instances

    @property
    def engines(self) -> tuple[EmulatedEngine, ...]:
        return tuple(instance.engine for instance in self._instances)

    def pools(self) -> tuple[Pool, ...]:
        """The pool of every instance; without meaning under round-robin."""
        return tuple(instance.pool for instance in self._instances)

    def submit(self, request: EmulatedRequest, now_s: float) -> None:
        """Route a request to an instance, where it stays."""
        self.advance(now_s)
        if not self._open():
            self._tick_s = now_s + self._rules.period_s
        chosen = self._route(request)
        self._submitted += 1
        self._at[request.request_id] = chosen
        chosen.submit(request, now_s)

    def abort(self, request_id: str, now_s: float) -> bool:
        """End a request wherever it is; False if it is unknown or has ended."""
        self.advance(now_s)
        at = self._at.get(request_id)
        return at is not None and at.engine.abort(request_id, now_s)

    def apply_settings(self, *, version: int, policy: str, slos: Mapping[str, Target]) -> None:
        """Put targets in force on every instance. Raises: PolicyError if the policy is another."""
        if policy != self.spec.text:
            raise PolicyError(f"a fleet keeps its policy {self.spec.text}; {policy} needs a new one")
        for instance in self._instances:
            engine_policy = self.spec.instance_policy
            instance.engine.apply_settings(version=version, policy=engine_policy, slos=slos)

    def counters(self) -> EngineCounters:
        """Counters of all instances together."""
        parts = [instance.engine.counters() for instance in self._instances]
        return summed(parts, policy=self.spec.text, elapsed_s=self.now_s)

    def next_event_s(self) -> float:
        """When something happens next; ticks of the controller count only while requests are open."""
        event_s = min(instance.engine.next_event_s() for instance in self._instances)
        return min(event_s, self._tick_s) if self._is_spatial and self._open() else event_s

    def advance(self, until_s: float) -> None:
        """Run everything that happens up to `until_s` on all instances, in order of time."""
        while (event_s := self.next_event_s()) <= until_s:
            for instance in self._instances:
                if instance.engine.next_event_s() <= event_s:
                    instance.engine.advance(event_s)
            self.now_s = event_s
            if self._is_spatial and event_s >= self._tick_s:
                self._control()
        if math.isfinite(until_s):
            for instance in self._instances:
                instance.engine.advance(until_s)
            self.now_s = max(self.now_s, until_s)

    def token_times(self, request: EmulatedRequest) -> NDArray[np.float64]:
        """The instants of all tokens of a request, in seconds."""
        return self._at[request.request_id].engine.token_times(request)

    def check_integrity(self) -> None:
        """Check every instance. Raises: EngineInvariantError."""
        for instance in self._instances:
            instance.engine.check_integrity()

    def _open(self) -> int:
        return sum(instance.open for instance in self._instances)

    def _route(self, request: EmulatedRequest) -> FleetInstance:
        if not self._is_spatial:
            return self._instances[self._submitted % len(self._instances)]
        shorts = [i for i in self._of(Pool.SHORT) if is_short(i.new_tokens(request), 0, None)]
        return min(shorts or self._of(Pool.LONG), key=lambda instance: instance.load_with(request))

    def _of(self, pool: Pool) -> list[FleetInstance]:
        return [instance for instance in self._instances if instance.pool is pool]

    def _control(self) -> None:
        """One tick: at most one instance, the least loaded of its pool, goes over to the other."""
        self._tick_s = self.now_s + self._rules.period_s
        for instance in self._instances:
            instance.engine.advance(self.now_s)
        shorts, longs = (
            [instance.signals(self.now_s) for instance in self._of(pool)] for pool in (Pool.SHORT, Pool.LONG)
        )
        to, self._state = control(self._state, shorts, longs, now_s=self.now_s, rules=self._rules)
        if to is None:
            return
        pool = self._of(Pool.LONG if to is Pool.SHORT else Pool.SHORT)
        moved = min(pool, key=lambda instance: (instance.queued_s, instance.open))
        moved.pool = to
        number = self._instances.index(moved)
        self.moves.append(PoolMove(at_s=self.now_s, instance=number, to=to))
