"""Profiles as they leave the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from pdmuxd.engine.core.guard import GuardCell
from pdmuxd.engine.profiling.document import MeasuredProfile

Predictor = Literal["prefill", "decode"]
ChangeKind = Literal["raised", "lowered", "corrected", "reset", "frozen", "thawed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredProfile:
    """A profile and what the store knows of it; `profile` is without its samples."""

    profile_id: int
    name: str
    version: int
    origin: str
    device: str
    model: str
    worst_p90: float
    samples: int
    frozen: bool
    created_at: datetime
    is_active: bool
    profile: MeasuredProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What serving has taught beyond the measured profile."""

    cells: dict[GuardCell, float]
    corrections: dict[tuple[Predictor, int], float]
    """By predictor and SMs."""


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

    @property
    def subject(self) -> str:
        """For people and for the table."""
        if self.cell is not None:
            return cell_text(self.cell)
        return f"{self.predictor} {self.sms}" if self.predictor is not None else "profile"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedChange:
    """A change in the record."""

    kind: str
    subject: str
    before: float
    after: float
    evidence: str
    at_bound: bool
    created_at: datetime


def cell_text(cell: GuardCell) -> str:
    """Such as 36-2-0-5-3."""
    return "-".join(str(index) for index in cell)


def cell_of(text: str) -> GuardCell | None:
    """The cell that `cell_text` wrote; None if it is none."""
    parts = text.split("-")
    if len(parts) != 5 or not all(part.isascii() and part.isdigit() and len(part) <= 4 for part in parts):
        return None
    sms, new, reused, bs, context = (int(part) for part in parts)
    return (sms, new, reused, bs, context)
