"""Reads and writes what was learned of one profile, within one transaction."""

from __future__ import annotations

from datetime import datetime
from typing import cast, get_args

from sqlalchemy import delete
from sqlmodel import Session, col, select

from pdmuxd.controlplane.profiles.rows import LearnedCellRow, LearnedCorrectionRow, ProfileChangeRow
from pdmuxd.controlplane.profiles.values import Learned, RecordedChange, cell_of, cell_text, subject_of
from pdmuxd.engine.core.errors import StoreError
from pdmuxd.engine.core.guard import GuardCell
from pdmuxd.engine.profiling.corrections import Change, Predictor


class LearnedRepository:
    """What serving has taught, and the record of it."""

    def __init__(self, session: Session, profile_id: int) -> None:
        self._session = session
        self._profile_id = profile_id

    def read(self) -> Learned:
        """Everything that serving has taught."""
        cells = self._session.exec(
            select(LearnedCellRow).where(LearnedCellRow.profile_id == self._profile_id)
        )
        corrections = self._session.exec(
            select(LearnedCorrectionRow).where(LearnedCorrectionRow.profile_id == self._profile_id)
        )
        return Learned(
            cells={_cell(row.cell): row.ratio for row in cells},
            corrections={(_predictor(row.predictor), row.sms): row.ratio for row in corrections},
        )

    def learn(self, change: Change, *, now: datetime) -> None:
        if change.cell is not None:
            self._session.merge(
                LearnedCellRow(
                    profile_id=self._profile_id,
                    cell=cell_text(change.cell),
                    ratio=change.after,
                    changed_at=now,
                )
            )
        elif change.predictor is not None:
            self._session.merge(
                LearnedCorrectionRow(
                    profile_id=self._profile_id,
                    predictor=change.predictor,
                    sms=change.sms,
                    ratio=change.after,
                    changed_at=now,
                )
            )
        self.record(change, now=now)

    def record(self, change: Change, *, now: datetime) -> None:
        """Keep a change for people to read."""
        self._session.add(
            ProfileChangeRow(
                profile_id=self._profile_id,
                kind=change.kind,
                subject=subject_of(change),
                before=change.before,
                after=change.after,
                evidence=change.evidence,
                at_bound=change.at_bound,
                created_at=now,
            )
        )
        self._session.flush()

    def forget_cell(self, cell: GuardCell) -> None:
        """Go back to the measured bound of a cell."""
        self._session.execute(
            delete(LearnedCellRow).where(
                col(LearnedCellRow.profile_id) == self._profile_id,
                col(LearnedCellRow.cell) == cell_text(cell),
            )
        )

    def forget_all(self) -> None:
        """Go back to the profile as it was measured."""
        for table in (LearnedCellRow, LearnedCorrectionRow):
            self._session.execute(delete(table).where(col(table.profile_id) == self._profile_id))

    def changes(self, limit: int) -> list[RecordedChange]:
        """The newest changes, newest first."""
        statement = (
            select(ProfileChangeRow)
            .where(ProfileChangeRow.profile_id == self._profile_id)
            .order_by(col(ProfileChangeRow.id).desc())
            .limit(limit)
        )
        return [_recorded(row) for row in self._session.exec(statement)]


def changes_between(
    session: Session, start: datetime, end: datetime, limit: int
) -> list[tuple[int, RecordedChange]]:
    """(profile, change) of every profile from `start` until before `end`, newest first."""
    statement = (
        select(ProfileChangeRow)
        .where(col(ProfileChangeRow.created_at) >= start, col(ProfileChangeRow.created_at) < end)
        .order_by(col(ProfileChangeRow.id).desc())
        .limit(limit)
    )
    return [(row.profile_id, _recorded(row)) for row in session.exec(statement)]


def _recorded(row: ProfileChangeRow) -> RecordedChange:
    return RecordedChange(
        kind=row.kind,
        subject=row.subject,
        before=row.before,
        after=row.after,
        evidence=row.evidence,
        at_bound=row.at_bound,
        created_at=row.created_at,
    )


def _predictor(text: str) -> Predictor:
    for predictor in get_args(Predictor):
        if predictor == text:
            return cast("Predictor", predictor)
    raise StoreError(f"the predictor {text!r} in the database is none; restore a backup")


def _cell(text: str) -> GuardCell:
    cell = cell_of(text)
    if cell is None:
        raise StoreError(f"the guard cell {text!r} in the database is none; restore a backup")
    return cell
