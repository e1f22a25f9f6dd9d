"""Requests that were in flight when engines died: one that was there twice is not sent to a third.

What ends an engine once ends the next one too, and its client sends it again. Nothing is known of the cause
here, so what counts is who was there: requests that had no token yet or only their first, and of these the
same body, or the same tenant alone, at two deaths.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

from pdmuxd.controlplane.node.quarantine import Held
from pdmuxd.engine.core.errors import RequestError

FIRST_STEPS_S = 1.0
"""An answer that began so short a time ago is in its first steps: 20 of 50 ms, the default TBT target."""
LEFT_S = 30.0
"""A client may leave after it has sent what ends an engine. An engine that hangs is ended after 30 s."""
_MOST_LEFT = 1024
_MOST_DEATHS = 16
_DEATHS_TO_HOLD = 2
_MOST_NAMED = 16
"""Request ids of one tenant that are listed."""

_Body = tuple[str, bytes]
"""A tenant, and the hash of what it asked."""


@dataclass(slots=True)
class _Death:
    engine: object
    at_s: float
    suspects: dict[_Body, str] = field(default_factory=dict)
    """With the id of a request that had it."""
    others: dict[_Body, str] = field(default_factory=dict)
    reason: str | None = None
    """Why the engine ended, as its last exception or the operating system says; None until that is known."""

    @property
    def accused(self) -> dict[_Body, str]:
        return self.suspects or self.others


class Quarantine:
    """Remembers the deaths of the last `hold_s` seconds; 0 switches it off and releases all."""

    def __init__(self, hold_s: float = 600.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.hold_s = hold_s
        self._clock = clock
        self._deaths: deque[_Death] = deque(maxlen=_MOST_DEATHS)
        self._left: deque[tuple[float, object, _Body, str]] = deque(maxlen=_MOST_LEFT)
        self._ended: object = None
        """The engine that an operator ended last."""
        self._died: tuple[object, str | None] = None, None
        """The engine that died last, and why."""

    def in_flight(
        self, engine: object, *, tenant: str, payload: bytes, rid: str, begun_s: float | None
    ) -> None:
        """A request that `engine` lost; `begun_s` is when its answer began, None if it did not."""
        if engine is self._ended:
            return
        death = self._death_of(engine)
        is_suspect = begun_s is None or self._clock() - begun_s < FIRST_STEPS_S
        (death.suspects if is_suspect else death.others)[tenant, _digest(payload, rid)] = rid

    def client_left(self, engine: object, *, tenant: str, payload: bytes, rid: str) -> None:
        """A request without a token whose client left while `engine` had it."""
        self._left.append((self._clock(), engine, (tenant, _digest(payload, rid)), rid))

    def engine_died(self, engine: object, reason: str | None = None) -> None:
        """Note that the engine ended for this reason, and not because an operator wanted it to."""
        self._died = engine, reason
        since_s = self._clock() - LEFT_S
        gone = {body: rid for at_s, of, body, rid in self._left if of is engine and at_s >= since_s}
        if gone or any(death.engine is engine for death in self._deaths):
            death = self._death_of(engine)
            death.suspects |= gone
            death.reason = reason
        self._left.clear()

    def engine_ended(self, engine: object) -> None:
        """An operator ended it: nobody is to blame."""
        self._ended = engine
        self._deaths = deque((each for each in self._deaths if each.engine is not engine), _MOST_DEATHS)
        self._left.clear()

    def check(self, *, tenant: str, payload: bytes, rid: str) -> None:
        """Raises: RequestError 403 for a request, or a tenant, that was there at two deaths."""
        since_s = self._forget_old()
        accusing = [death for death in self._deaths if any(who == tenant for who, _ in death.accused)]
        if len(accusing) < _DEATHS_TO_HOLD:
            return
        if deaths := self._against(tenant, _digest(payload, rid)):
            raise _held("this request was in flight when two engines ended", _left_s(deaths, since_s))
        if deaths := self._against(tenant, None):
            why = f"only requests of tenant {tenant} were in flight when two engines ended"
            raise _held(why, _left_s(deaths, since_s))

    def may_clear(self, engine: object) -> bool:
        """Whether somebody can be known to have ended `engine`: nobody is at the first end of an engine."""
        self._forget_old()
        return any(death.engine is not engine for death in self._deaths)

    def clears(self, engine: object, *, tenant: str, payload: bytes, rid: str) -> bool:
        """Whether what ended `engine` is known by now, and is not this request."""
        body = tenant, _digest(payload, rid)
        accused = next((death.accused for death in self._deaths if death.engine is engine), {})
        return any(self._against(*each) for each in accused if each != body) and not self._against(*body)

    def lost_with(self, engine: object) -> list[tuple[str, str]]:
        """The id and the tenant of each request that `engine` is known to have lost."""
        return [
            (rid, tenant)
            for death in self._deaths
            if death.engine is engine
            for bodies in (death.suspects, death.others)
            for (tenant, _), rid in bodies.items()
        ]

    def held(self) -> list[Held]:
        """List what `check` refuses now."""
        since_s = self._forget_old()
        bodies = dict.fromkeys(body for death in self._deaths for body in death.accused)
        tenants = dict.fromkeys((tenant, None) for tenant, _ in bodies)
        found: list[Held] = []
        for tenant, digest in (*bodies, *tenants):
            deaths = self._against(tenant, digest) if tenant else []
            if deaths:
                there = [
                    rid
                    for death in deaths
                    for (_, theirs), rid in death.accused.items()
                    if digest in (None, theirs)
                ]
                found.append(
                    Held(
                        tenant=tenant,
                        body=None if digest is None else digest.hex(),
                        request_ids=tuple(there[-_MOST_NAMED:]),
                        engine_errors=tuple(death.reason for death in deaths if death.reason is not None),
                        left_s=_left_s(deaths, since_s),
                    )
                )
        return found

    def held_by_tenant(self) -> Mapping[str, int]:
        """How many entries `held` lists of each tenant; for any thread, since it looks at copies."""
        since_s = self._clock() - self.hold_s
        deaths = [frozenset(each.accused) for each in tuple(self._deaths) if each.at_s >= since_s]
        there = Counter[tuple[str, bytes | None]](body for bodies in deaths for body in bodies)
        for tenants in ({tenant for tenant, _ in bodies} for bodies in deaths):
            if len(tenants) == 1:
                there[tenants.pop(), None] += 1
        held = self.hold_s > 0
        return Counter(who for (who, _), count in there.items() if held and who and count >= _DEATHS_TO_HOLD)

    def release(self, tenant: str | None = None) -> int:
        """Forget who was there, of one tenant or of all; how many entries that releases."""
        before = len(self.held())
        if tenant is None:
            self._deaths.clear()
        for death in self._deaths:
            for bodies in (death.suspects, death.others):
                for body in [body for body in bodies if body[0] == tenant]:
                    # It stays as nobody's: without it others would have been there alone.
                    bodies["", body[1]] = bodies.pop(body)
        return before - len(self.held())

    def _against(self, tenant: str, digest: bytes | None) -> list[_Death]:
        """The deaths for which a body is held, or with None the whole tenant; none if they are too few."""
        if digest is None:
            found = [each for each in self._deaths if {who for who, _ in each.accused} == {tenant}]
        else:
            found = [each for each in self._deaths if (tenant, digest) in each.accused]
        return found if len(found) >= _DEATHS_TO_HOLD else []

    def _forget_old(self) -> float:
        """Since when deaths count."""
        since_s = self._clock() - self.hold_s
        while self._deaths and (self._deaths[0].at_s < since_s or not self.hold_s):
            self._deaths.popleft()
        return since_s

    def _death_of(self, engine: object) -> _Death:
        for death in self._deaths:
            if death.engine is engine:
                return death
        died, reason = self._died
        self._deaths.append(_Death(engine, self._clock(), reason=reason if died is engine else None))
        return self._deaths[-1]


def _digest(payload: bytes, rid: str) -> bytes:
    """The hash of what is asked, which is the same when it is sent again under another id."""
    return blake2b(payload.replace(rid.encode(), b""), digest_size=16).digest()


def _left_s(deaths: Sequence[_Death], since_s: float) -> float:
    """Seconds that it is held: until one death less would be too few to hold it."""
    return deaths[-_DEATHS_TO_HOLD].at_s - since_s


def _held(why: str, left_s: float) -> RequestError:
    return RequestError(
        f"{why}; it is not sent to another one for {max(1, round(left_s))} s, or until an operator "
        "releases it (pdmuxd engine quarantine)",
        status=403,
        code="quarantined",
    )
