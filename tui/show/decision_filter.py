"""Which decisions of the log are wanted."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pdmuxd.tui.client.wire import DecisionEvent
from pdmuxd.tui.show.reasons import SITS_OUT
from pdmuxd.tui.show.words import REASONS


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionFilter:
    """`reason` is a part of a reason's name, or of SITS_OUT; who was in the engine only the daemon knows."""

    reason: str = ""
    tenant: str = ""

    def keeps(self, one: DecisionEvent) -> bool:
        """Whether the reason fits, or that some of the batch sit out."""
        return self.reason in one.reason or bool(one.sitting_out and self.reason in SITS_OUT)

    def of(self, decisions: Iterable[DecisionEvent]) -> list[DecisionEvent]:
        """Decisions that fit, in the order given."""
        return [one for one in decisions if self.keeps(one)] if self.reason else list(decisions)

    def with_next_reason(self, seen: Iterable[DecisionEvent]) -> DecisionFilter:
        """The next of the reasons that were seen, SITS_OUT as the last, then none."""
        there: set[str] = set()
        for one in seen:
            there.add(one.reason)
            if one.sitting_out:
                there.add(SITS_OUT)
        names = ["", *(reason for reason in (*REASONS, SITS_OUT) if reason in there)]
        at = names.index(self.reason) if self.reason in names else -1
        return replace(self, reason=names[(at + 1) % len(names)])

    def __str__(self) -> str:
        parts = [
            f"reason {self.reason}" if self.reason else "",
            f"tenant {self.tenant}" if self.tenant else "",
        ]
        return ", ".join(part for part in parts if part)


def parse(text: str) -> DecisionFilter:
    """`tbt_inf tenant:chat`: words are parts of a reason, `tenant:` names a tenant."""
    reason, tenant = "", ""
    for word in text.lower().split():
        if word.startswith("tenant:"):
            tenant = word.removeprefix("tenant:")
        else:
            reason = word.removeprefix("reason:")
    return DecisionFilter(reason=reason, tenant=tenant)
