"""What serving teaches about a profile, as a record of each change."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pdmuxd.engine.core.guard import GuardCell

Predictor = Literal["prefill", "decode", "fused"]
ChangeKind = Literal["raised", "lowered", "corrected", "reset", "frozen", "thawed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that was learned: a guard cell, or the correction of a predictor on a number of SMs."""

    kind: ChangeKind
    cell: GuardCell | None = None
    predictor: Predictor | None = None
    sms: int = 0
    before: float
    after: float
    evidence: str
    """In words: how many steps, and what they took."""
    at_bound: bool = False
