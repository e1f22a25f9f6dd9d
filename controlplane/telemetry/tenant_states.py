"""How each tenant stands now, kept as its requests end, so that no look takes all tenants at once.

A tenant's state changes when a request of it begins or ends, while one waits late, and when a slot leaves its
windows. So it is looked at when something of it changed, each second while it waits late or burns, and once
in each slot. A look takes so many tenants at most; the others are looked at in the next turn.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from pdmuxd.controlplane.events.messages import IncidentEvent, Verdict
from pdmuxd.controlplane.services.directory import DirectorySnapshot
from pdmuxd.controlplane.telemetry.alarms import Condition
from pdmuxd.controlplane.telemetry.attainment import (
    FIVE_MINUTES_S,
    HOUR_S,
    HOUR_SLOT_S,
    Attainment,
    verdict_of,
)
from pdmuxd.controlplane.telemetry.conditions import BURN_WINDOWS_S, burn_conditions
from pdmuxd.controlplane.telemetry.incidents import Incidents
from pdmuxd.controlplane.telemetry.waiting import NOTHING_OPEN, OpenCounts

AT_ONCE = 50
"""Tenants in one look."""
LOOKED_AT_ONCE = 5
"""Of these, in one step of it; each takes some 100 us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantState:
    """One tenant when it was last looked at."""

    verdict: Verdict = "no_traffic"
    met_ratio: float = 1.0
    """Over the last five minutes, of TTFT, TBT or availability, whichever is worst."""
    burning: tuple[Condition, ...] = ()


NO_TRAFFIC = TenantState()


class TenantStates:
    """Fed and asked in one thread; `attainments` is by tenant."""

    def __init__(self, attainments: Mapping[str, Attainment], incidents: Incidents | None = None) -> None:
        self.incidents = Incidents() if incidents is None else incidents
        self.changed: list[IncidentEvent] = []
        """Incidents that have begun or are over, and are not told of yet."""
        self.verdicts: Counter[Verdict] = Counter()
        """How many tenants stand so, of those that had traffic lately."""
        self._attainments = attainments
        self._states: dict[str, TenantState] = {}
        self._active: OrderedDict[str, None] = OrderedDict()
        """In the order of their last traffic, the latest last."""
        self._changed: dict[str, None] = {}
        self._late: set[str] = set()
        self._burning: set[str] = set()
        self._others: list[str] = []
        """Those that are to be looked at in this slot, though nothing of them changed."""
        self._slot = 0

    def touch(self, name: str) -> None:
        self._changed[name] = None
        self._active[name] = None
        self._active.move_to_end(name)

    def drop(self, name: str) -> None:
        self._active.pop(name, None)
        self._changed.pop(name, None)
        self._keep(name, NO_TRAFFIC)

    def of(self, name: str) -> TenantState:
        return self._states.get(name, NO_TRAFFIC)

    def burning(self) -> Iterator[Condition]:
        for name in sorted(self._burning):
            yield from self.of(name).burning  # while it is asked, one may burn no more

    def active(self) -> Collection[str]:
        """The tenants with traffic within the last hour."""
        return self._active.keys()

    def latest(self) -> Iterator[str]:
        """The same, the latest first."""
        return reversed(self._active)

    def begin(self, waiting: Mapping[str, OpenCounts], now_s: float) -> None:
        """A second begins: note who has to be looked at in it."""
        late = {name for name, counts in waiting.items() if counts.missed}
        self._changed.update(dict.fromkeys((*late, *self._late, *self._burning, *self.incidents.names())))
        self._late = late
        slot = int(now_s / HOUR_SLOT_S)
        if slot != self._slot:
            self._slot = slot
            self._others = list(self._active)

    def look(
        self, directory: DirectorySnapshot, waiting: Mapping[str, OpenCounts], now_s: float
    ) -> Iterator[None]:
        """Look at the next tenants, those first of which something changed; at a few with each step."""
        for number in range(1, AT_ONCE + 1):
            if number % LOOKED_AT_ONCE == 0:
                yield
            if self._changed:
                name = next(iter(self._changed))
                del self._changed[name]
            elif self._others:
                name = self._others.pop()
                if self._last_s(name) < now_s - HOUR_S:
                    self._active.pop(name, None)
                    self._keep(name, NO_TRAFFIC)
                    continue
            else:
                return
            attainment, tenant = self._attainments.get(name), directory.tenants.get(name)
            if attainment is None or tenant is None:
                self._keep(name, NO_TRAFFIC)
                continue
            still, target_ratio = waiting.get(name, NOTHING_OPEN), tenant.slo.attainment_ratio
            windows = {w: attainment.violations(now_s, w, still) for w in BURN_WINDOWS_S}
            lately = windows[FIVE_MINUTES_S]
            ratios = [each.attainment_ratio for each in lately if each.attainment_ratio is not None]
            state = TenantState(
                verdict=verdict_of(lately, target_ratio),
                met_ratio=min(ratios, default=1.0),
                burning=tuple(burn_conditions(name, target_ratio, windows)),
            )
            self._keep(name, state)
            incident = self.incidents.look(
                name,
                is_missed=state.verdict == "missed",
                promised_ratio=target_ratio,
                waiting=waiting,
                now_s=now_s,
            )
            if incident is not None:
                self.changed.append(incident)

    def _last_s(self, name: str) -> float:
        attainment = self._attainments.get(name)
        return 0.0 if attainment is None else attainment.last_s

    def _keep(self, name: str, state: TenantState) -> None:
        before = self._states.pop(name, None)
        if before is not None:
            self.verdicts[before.verdict] -= 1
        if state.verdict != "no_traffic" or state.burning:
            self._states[name] = state
            self.verdicts[state.verdict] += 1
        (self._burning.add if state.burning else self._burning.discard)(name)
