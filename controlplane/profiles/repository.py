"""Reads and writes profiles within one transaction."""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache

import msgspec
from sqlalchemy import func
from sqlmodel import Session, col, select

from pdmuxd.controlplane.profiles.rows import DEVICE_MAX, ActivationRow, ProfileRow
from pdmuxd.controlplane.profiles.values import Activation, StoredProfile
from pdmuxd.engine.core.errors import NotFoundError, StoreError
from pdmuxd.engine.profiling.document import MeasuredProfile, from_json, samples_from_json, to_json


class ProfileRepository:
    """Profiles by id."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, profile: MeasuredProfile, *, origin: str, now: datetime, settings_version: int) -> int:
        """Append a version of the profile's name; its id."""
        newest = select(func.max(ProfileRow.version)).where(ProfileRow.name == profile.name)
        row = ProfileRow(
            name=profile.name,
            version=(self._session.exec(newest).one() or 0) + 1,
            origin=origin,
            device=profile.provenance.device[:DEVICE_MAX],
            model=profile.provenance.model[:DEVICE_MAX],
            worst_p90=profile.worst_p90,
            samples_count=len(profile.samples),
            frozen=False,
            document=to_json(msgspec.structs.replace(profile, samples=())).decode(),
            samples=msgspec.json.encode(profile.samples).decode(),
            created_at=now,
            settings_version=settings_version,
        )
        self._session.add(row)
        self._session.flush()
        return _id(row)

    def newest_first(self) -> list[StoredProfile]:
        active = self.active_id()
        rows = self._session.exec(select(ProfileRow).order_by(col(ProfileRow.id).desc()))
        return [_value(row, active) for row in rows]

    def get(self, profile_id: int) -> StoredProfile:
        """Raises: NotFoundError."""
        return _value(self.row(profile_id), self.active_id())

    def row(self, profile_id: int) -> ProfileRow:
        """The row itself, to change it. Raises: NotFoundError."""
        row = self._session.get(ProfileRow, profile_id)
        if row is None:
            raise NotFoundError(f"there is no profile {profile_id}")
        return row

    def whole(self, profile_id: int) -> MeasuredProfile:
        """A profile with its samples. Raises: NotFoundError."""
        row = self.row(profile_id)
        samples = samples_from_json(row.samples, row.document)
        return msgspec.structs.replace(_document(row.document), samples=samples)

    def has_origin(self, origin: str) -> bool:
        """Whether one of this origin was ever stored."""
        return (
            self._session.exec(select(ProfileRow.id).where(ProfileRow.origin == origin)).first() is not None
        )

    # Activation

    def active_id(self) -> int | None:
        """The id of the profile in force; None while it is the engine's own."""
        row = self._newest(1)
        return row[0].profile_id if row else None

    def is_forced(self) -> bool:
        """Whether the profile in force was insisted on, doubtful parts and all."""
        row = self._newest(1)
        return bool(row) and row[0].forced

    def active_version(self) -> int:
        """The settings version of the activation that holds; 0 before the first."""
        row = self._newest(1)
        return row[0].settings_version if row else 0

    def is_frozen(self, profile_id: int) -> bool:
        """Whether nothing is learned of it; without reading its document."""
        return bool(self._session.exec(select(ProfileRow.frozen).where(ProfileRow.id == profile_id)).one())

    def activate(self, profile_id: int | None, *, forced: bool, settings_version: int, now: datetime) -> None:
        """Put a profile in force, or the engine's own."""
        self._session.add(
            ActivationRow(
                profile_id=profile_id, forced=forced, settings_version=settings_version, created_at=now
            )
        )
        self._session.flush()

    def previous_id(self) -> int | None:
        """What was in force before. Raises: NotFoundError if nothing ever was."""
        rows = self._newest(2)
        if not rows:
            raise NotFoundError("no profile has been activated, so there is none to go back to")
        return rows[1].profile_id if len(rows) > 1 else None

    def undo_activation(self) -> None:
        """Forget the newest activation: the one before holds again, and the next undo goes further back."""
        self._session.delete(self._newest(1)[0])
        self._session.flush()

    def activations(self, limit: int) -> list[Activation]:
        """The newest, newest first; what was undone is not among them."""
        return [
            Activation(
                profile_id=row.profile_id,
                forced=row.forced,
                settings_version=row.settings_version,
                created_at=row.created_at,
            )
            for row in self._newest(limit)
        ]

    def _newest(self, count: int) -> list[ActivationRow]:
        statement = select(ActivationRow).order_by(col(ActivationRow.id).desc()).limit(count)
        return [*self._session.exec(statement)]


def _id(row: ProfileRow) -> int:
    if row.id is None:
        raise StoreError("a profile has no id yet")
    return row.id


@lru_cache(maxsize=16)
def _document(text: str) -> MeasuredProfile:
    """A document has thousands of guard cells and never changes."""
    return from_json(text, "the database")


def _value(row: ProfileRow, active_id: int | None) -> StoredProfile:
    return StoredProfile(
        profile_id=_id(row),
        name=row.name,
        version=row.version,
        origin=row.origin,
        device=row.device,
        model=row.model,
        worst_p90=row.worst_p90,
        samples=row.samples_count,
        frozen=row.frozen,
        created_at=row.created_at,
        is_active=row.id == active_id,
        settings_version=row.settings_version,
        profile=_document(row.document),
    )
