"""The tables of profiles. A document is added, never changed; what is learned has tables of its own."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import CheckConstraint, Text
from sqlmodel import Field

from pdmuxd.controlplane.database.row import Row, UtcDateTime

NAME_MAX = 63
DEVICE_MAX = 200


class ProfileRow(Row, table=True):
    """A measured profile. `document` is JSON without its samples, which are in `samples`."""

    __tablename__ = "profiles"

    id: int | None = Field(default=None, primary_key=True)
    name: str = Field(max_length=NAME_MAX, index=True)
    version: int
    """Counts the profiles of this name."""
    origin: str = Field(max_length=20)
    """`measured` or `imported`."""
    device: str = Field(max_length=DEVICE_MAX)
    model: str = Field(max_length=DEVICE_MAX)
    worst_p90: float
    samples_count: int
    frozen: bool
    """Nothing is learned while it is in force."""
    document: str = Field(sa_type=Text)
    samples: str = Field(sa_type=Text)
    created_at: datetime = Field(sa_type=UtcDateTime)
    settings_version: int = Field(sa_column_kwargs={"server_default": "0"})
    """Of the last change that an operator made to it."""


class ActivationRow(Row, table=True):
    """Which profile was put in force when; the newest holds. No profile: the engine's own."""

    __tablename__ = "profile_activations"

    id: int | None = Field(default=None, primary_key=True)
    profile_id: int | None = Field(foreign_key="profiles.id", ondelete="CASCADE")
    forced: bool
    settings_version: int
    created_at: datetime = Field(sa_type=UtcDateTime)


class LearnedCellRow(Row, table=True):
    """A guard cell whose bound is no longer the measured one."""

    __tablename__ = "learned_cells"
    __table_args__ = (CheckConstraint("ratio >= 1", name="ratio"),)

    profile_id: int = Field(primary_key=True, foreign_key="profiles.id", ondelete="CASCADE")
    cell: str = Field(primary_key=True, max_length=40)
    """The cell's indices, joined by `-`."""
    ratio: float
    changed_at: datetime = Field(sa_type=UtcDateTime)


class LearnedCorrectionRow(Row, table=True):
    """Measured over predicted time of one kind of work on so many SMs."""

    __tablename__ = "learned_corrections"
    __table_args__ = (CheckConstraint("ratio > 0", name="ratio"),)

    profile_id: int = Field(primary_key=True, foreign_key="profiles.id", ondelete="CASCADE")
    predictor: str = Field(primary_key=True, max_length=20)
    """`prefill`, `decode` or `fused`."""
    sms: int = Field(primary_key=True)
    ratio: float
    changed_at: datetime = Field(sa_type=UtcDateTime)


class ProfileChangeRow(Row, table=True):
    """One thing that was learned, or reset: before, after, and what it was concluded from."""

    __tablename__ = "profile_changes"

    id: int | None = Field(default=None, primary_key=True)
    profile_id: int = Field(foreign_key="profiles.id", ondelete="CASCADE", index=True)
    kind: str = Field(max_length=20)
    """`raised`, `lowered`, `corrected`, `reset`, `frozen` or `thawed`."""
    subject: str = Field(max_length=60)
    """A guard cell, or a predictor and its SMs."""
    before: float
    after: float
    evidence: str = Field(max_length=200)
    at_bound: bool
    """Whether the correction was cut at its allowed maximum."""
    created_at: datetime = Field(sa_type=UtcDateTime)
