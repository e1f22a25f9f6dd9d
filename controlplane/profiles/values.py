"""Profiles as they leave the store."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from pdmuxd.engine.core.guard import GuardCell
from pdmuxd.engine.profiling.corrections import Change, Predictor
from pdmuxd.engine.profiling.document import MeasuredProfile


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
    settings_version: int
    """Of the last change that an operator made to it."""
    profile: MeasuredProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Learned:
    """What serving has taught beyond the measured profile."""

    cells: dict[GuardCell, float]
    corrections: dict[tuple[Predictor, int], float]
    """By predictor and SMs."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Activation:
    """A profile that was put in force; no profile is the engine's own."""

    profile_id: int | None
    forced: bool
    settings_version: int
    created_at: datetime


def subject_of(change: Change) -> str:
    """What a change is of, for people and for the table."""
    if change.cell is not None:
        return cell_text(change.cell)
    return f"{change.predictor} {change.sms}" if change.predictor is not None else "profile"


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
