"""What the quarantine holds, as alarms and in the audit: when it becomes held, and when it is no more."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.controlplane.node.quarantine import Held
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.alarms import Condition
from pdmuxd.daemon.gateway.quarantine import Quarantine
from pdmuxd.daemon.process.duty import Duty

LOOK_EVERY_S = 1.0
_SUBJECT = "engine"

_Key = tuple[str, str | None]
"""A tenant, and the hash of a body or None for all of its requests."""


@dataclass(slots=True)
class _Known:
    held: Held
    until_s: float
    is_recorded: bool = False


class QuarantineRecord:
    """The control plane's QuarantineActions, and a record of what it lists. Lives in the event loop."""

    def __init__(
        self,
        quarantine: Quarantine,
        control_plane: ControlPlane,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._quarantine = quarantine
        self._control_plane = control_plane
        self._clock = clock
        self._known: dict[_Key, _Known] = {}

    def held(self) -> Sequence[Held]:
        return self._quarantine.held()

    def release(self, tenant: str | None = None) -> int:
        """Forget the ends of engines, of one tenant or of all; how many entries that releases.

        Who released it writes that down.
        """
        released = self._quarantine.release(tenant)
        held = {_key(one) for one in self.held()}
        self._known = {key: known for key, known in self._known.items() if key in held}
        return released

    def conditions(self) -> Iterator[Condition]:
        """An alarm for each tenant of which something is held."""
        bodies: dict[str, list[str | None]] = {}
        for one in self.held():
            bodies.setdefault(one.tenant, []).append(one.body)
        for tenant, theirs in bodies.items():
            what = "all requests" if None in theirs else f"{len(theirs)} request{'s' * (len(theirs) > 1)}"
            yield Condition(
                kind="quarantined",
                tenant=tenant,
                text=f"{tenant}: {what} refused, since two engines died with them "
                f"(pdmuxd engine quarantine --release {tenant} serves them again)",
            )

    async def look(self) -> None:
        """Write down what has become held, and what ended by itself.

        Raises: StoreError if it cannot; the next look tries it again.
        """
        now_s = self._clock()
        held = {_key(one): one for one in self.held()}
        for key, one in held.items():
            known = self._known.get(key)
            if known is None:
                # It is written down at the next look, when the supervisor has told why the engine ended.
                self._known[key] = _Known(one, now_s + one.left_s)
                continue
            known.held, known.until_s = one, now_s + one.left_s
            if not known.is_recorded:
                after = {
                    "body": one.body,
                    "request_ids": list(one.request_ids),
                    "engine_errors": list(one.engine_errors),
                    "held_s": round(one.left_s),
                }
                await self._record("quarantine.hold", one.tenant, after)
                known.is_recorded = True
        for key in [key for key in self._known if key not in held]:
            known = self._known[key]
            if known.is_recorded:
                expired = now_s >= known.until_s - LOOK_EVERY_S
                after = {"body": key[1], "why": "its time is over" if expired else "data.quarantine_s"}
                await self._record("quarantine.expire", key[0], after)
            self._known.pop(key, None)

    async def _record(self, action: str, tenant: str, after: Mapping[str, object]) -> None:
        record = self._control_plane.record_action
        await asyncio.to_thread(record, action, subject=_SUBJECT, after=after, tenant=tenant)


def duties(record: QuarantineRecord) -> tuple[Duty, ...]:
    """Look every LOOK_EVERY_S."""
    return (Duty(name="recording the quarantine", work=record.look, period_s=LOOK_EVERY_S),)


def _key(held: Held) -> _Key:
    return held.tenant, held.body
