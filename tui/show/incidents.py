"""An incident in words, which the console, the pages and the command line tell alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol

from pdmuxd.tui.show import formats
from pdmuxd.tui.show.words import LABELS

NAMED = 3
"""Of other tenants, in a sentence."""


class HurtTarget(Protocol):
    """One target of an incident."""

    @property
    def target(self) -> str: ...
    @property
    def judged(self) -> int: ...
    @property
    def missed(self) -> int: ...
    @property
    def worst_ratio(self) -> float: ...
    @property
    def worst_by_ms(self) -> float: ...


class Told(Protocol):
    """An incident as the daemon tells it."""

    @property
    def tenant(self) -> str: ...
    @property
    def state(self) -> str: ...
    @property
    def began_at(self) -> datetime: ...
    @property
    def last_missed_at(self) -> datetime: ...
    @property
    def promised_ratio(self) -> float: ...
    @property
    def targets(self) -> Sequence[HurtTarget]: ...
    @property
    def command(self) -> str | None: ...
    @property
    def predicted(self) -> str | None: ...


def missed_in_words(incident: Told) -> str:
    """`TTFT and availability`."""
    return " and ".join(LABELS.get(one.target, one.target) for one in incident.targets) or LABELS["ttft"]


def harm_in_words(incident: Told) -> str:
    """How much of each target was missed, and how badly at worst."""
    said = []
    for one in incident.targets:
        by = f", by up to {formats.duration(one.worst_by_ms / 1000)}" if one.worst_by_ms else ""
        unit = "gaps" if one.target == "tbt" else "requests"
        missed = (
            f"{formats.count(one.missed)} of {formats.count(one.judged)} {unit} missed "
            if one.judged
            else "nothing has ended yet for "
        )
        kept = f"at worst {formats.percent(one.worst_ratio, 1)} kept in half a minute"
        said.append(f"{missed}{LABELS.get(one.target, one.target)}{by}, {kept}")
    promised = f"promised {formats.percent(incident.promised_ratio, 1)}"
    return "; ".join([*said, promised])


def help_in_words(incident: Told) -> str:
    """The command that would help, with what it is predicted to do."""
    if incident.command is None:
        return "no command is known to help"
    predicted = f" (predicted: {incident.predicted})" if incident.predicted else ""
    return f"{incident.command}{predicted}"


def also_in_words(others: Sequence[str], omitted: int, *, verb: str = "do") -> str:
    """`; so do a, b, c and 2 more`; empty without others."""
    left = max(0, len(others) - NAMED) + omitted
    if not others and not left:
        return ""
    names = [*others[:NAMED], *([f"{left} more"] if left else [])]
    said = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    is_one = verb == "do" and len(names) == 1 and not (left > 1)
    return f"; so {'does' if is_one else verb} {said}"


def lasted_s(incident: Told, now: datetime) -> float:
    """Seconds from its begin until now, or until its last miss."""
    until = now if incident.state == "open" else incident.last_missed_at
    return max(0.0, (until - incident.began_at).total_seconds())


def clean_s(incident: Told, now: datetime) -> float:
    """Since its last miss."""
    return max(0.0, (now - incident.last_missed_at).total_seconds())


def is_over(tenant: str, incidents: Iterable[Told]) -> bool:
    """Whether a tenant's last incident is over."""
    return any(one.tenant == tenant and one.state == "over" for one in incidents)
