"""What can be done to profiles; the REST routes, the command line and the refinement call the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from pdmuxd.controlplane.database.transactions import Changing, Transactions, check_expected
from pdmuxd.controlplane.profiles.learned import LearnedRepository, changes_between
from pdmuxd.controlplane.profiles.repository import ProfileRepository
from pdmuxd.controlplane.profiles.rows import ProfileRow
from pdmuxd.controlplane.profiles.values import (
    Activation,
    Learned,
    RecordedChange,
    StoredProfile,
    cell_text,
)
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, NotFoundError
from pdmuxd.engine.core.guard import GuardCell
from pdmuxd.engine.link.messages import Hello
from pdmuxd.engine.profiling.corrections import Change
from pdmuxd.engine.profiling.document import MeasuredProfile
from pdmuxd.engine.profiling.gate import refused_because, unusable_because

NAME_ALLOWED = "1 to 63 printable characters"
CHANGES_LIMIT = 100
SHIPPED = "shipped"
"""The origin of a profile that pdmuxd brought along."""


class Profiles:
    """Profiles in the control plane's database; any method may raise StoreError."""

    def __init__(self, transactions: Transactions) -> None:
        self._transaction = transactions.transaction
        self._transactions = transactions

    def add(self, profile: MeasuredProfile, *, origin: str) -> StoredProfile:
        """Store a profile as a new version of its name; it is not in force yet. Raises: InvalidValueError."""
        if not (0 < len(profile.name) <= 63 and profile.name.isprintable()):
            raise InvalidValueError("name", f"name is {profile.name[:80]!r}; allowed are {NAME_ALLOWED}")
        with self._change() as change:
            return _added(change, profile, origin)

    def newest_first(self) -> list[StoredProfile]:
        with self._transaction() as session:
            return ProfileRepository(session).newest_first()

    def get(self, profile_id: int) -> StoredProfile:
        """One, without its samples. Raises: NotFoundError."""
        with self._transaction() as session:
            return ProfileRepository(session).get(profile_id)

    def whole(self, profile_id: int) -> MeasuredProfile:
        """One with its samples, as it was measured. Raises: NotFoundError."""
        with self._transaction() as session:
            return ProfileRepository(session).whole(profile_id)

    def active(self) -> StoredProfile | None:
        """The one in force; None while it is the engine's own."""
        with self._transaction() as session:
            profiles = ProfileRepository(session)
            active_id = profiles.active_id()
            return None if active_id is None else profiles.get(active_id)

    # Activation

    def active_version(self) -> int:
        """The settings version of the activation that holds; 0 before the first."""
        with self._transaction() as session:
            return ProfileRepository(session).active_version()

    def activate(
        self,
        profile_id: int,
        hello: Hello | None,
        *,
        force: bool = False,
        expected_version: int | None = None,
    ) -> StoredProfile:
        """Put a profile in force in the engine that said `hello`; without one it is checked when one comes.

        Of a profile with doubtful parts the others come into force, unless forced: then all do.
        Raises: NotFoundError; ConflictError naming the difference for another engine's profile, and for one
        of which every part is doubtful unless forced; StaleVersionError if `expected_version` is not the
        activation's.
        """
        with self._activation(expected_version) as change:
            profiles = ProfileRepository(change.session)
            profile = profiles.get(profile_id).profile
            _check(profile, hello, force=force)
            profiles.activate(profile_id, forced=force, settings_version=change.version, now=change.now)
            return profiles.get(profile_id)

    def stand_in(self, profile: MeasuredProfile) -> StoredProfile | None:
        """Store a shipped profile and put it in force, doubtful or not; None, and nothing is done, if an
        operator put one in force before, or did away with a shipped one."""
        with self._activation(None) as change:
            profiles = ProfileRepository(change.session)
            change.is_needless = profiles.active_version() > 0 or profiles.has_origin(SHIPPED)
            if change.is_needless:
                return None
            stored = _added(change, profile, SHIPPED)
            profiles.activate(stored.profile_id, forced=True, settings_version=change.version, now=change.now)
            return profiles.get(stored.profile_id)

    def deactivate(self, *, expected_version: int | None = None) -> None:
        """Let the engine predict with its own profile, or its roofline. Raises: StaleVersionError."""
        with self._activation(expected_version) as change:
            profiles = ProfileRepository(change.session)
            change.is_needless = profiles.active_id() is None
            profiles.activate(None, forced=False, settings_version=change.version, now=change.now)

    def roll_back(self, hello: Hello | None, *, expected_version: int | None = None) -> StoredProfile | None:
        """Put in force what was before the newest activation; None if that is the engine's own.

        Raises: NotFoundError if nothing was ever activated; ConflictError for another engine's profile;
        StaleVersionError.
        """
        with self._activation(expected_version) as change:
            profiles = ProfileRepository(change.session)
            before = profiles.previous_id()
            if before is not None:
                _check(profiles.get(before).profile, hello, force=True)
            profiles.undo_activation()
            return None if before is None else profiles.get(before)

    # What was learned

    def learned(self, profile_id: int) -> Learned:
        """What serving has taught beyond the profile. Raises: NotFoundError."""
        with self._transaction() as session:
            ProfileRepository(session).row(profile_id)
            return LearnedRepository(session, profile_id).read()

    def changes(self, profile_id: int, limit: int = CHANGES_LIMIT) -> list[RecordedChange]:
        """The newest changes, newest first. Raises: NotFoundError."""
        with self._transaction() as session:
            ProfileRepository(session).row(profile_id)
            return LearnedRepository(session, profile_id).changes(limit)

    def changes_between(
        self, start: datetime, end: datetime, limit: int = CHANGES_LIMIT
    ) -> list[tuple[int, RecordedChange]]:
        """(profile, change) of every profile from `start` until before `end`, newest first."""
        with self._transaction() as session:
            return changes_between(session, start, end, limit)

    def activations(self, limit: int = CHANGES_LIMIT) -> list[Activation]:
        """The newest times that a profile, or the engine's own, was put in force, newest first."""
        with self._transaction() as session:
            return ProfileRepository(session).activations(limit)

    def learn(self, profile_id: int, changes: Sequence[Change]) -> None:
        """Keep what was learned, unless profile `profile_id` is frozen or no longer in force."""
        with self._change() as change:
            profiles = ProfileRepository(change.session)
            change.is_needless = (
                not changes or profiles.active_id() != profile_id or profiles.row(profile_id).frozen
            )
            learned = LearnedRepository(change.session, profile_id)
            for one in changes:
                learned.learn(one, now=change.now)

    def set_frozen(
        self, profile_id: int, frozen: bool, *, expected_version: int | None = None
    ) -> StoredProfile:
        """Learn nothing any more while the profile is in force, or learn again.

        Raises: NotFoundError, StaleVersionError.
        """
        with self._edit(profile_id, expected_version) as (change, row):
            profiles = ProfileRepository(change.session)
            change.is_needless = row.frozen == frozen
            change.audit(
                "profile.freeze" if frozen else "profile.thaw",
                subject=str(profile_id),
                before={"frozen": row.frozen},
                after={"frozen": frozen},
            )
            row.frozen = frozen
            kind = Change(
                kind="frozen" if frozen else "thawed",
                before=float(not frozen),
                after=float(frozen),
                evidence="an operator",
            )
            LearnedRepository(change.session, profile_id).record(kind, now=change.now)
            return profiles.get(profile_id)

    def reset_cell(self, profile_id: int, cell: GuardCell, *, expected_version: int | None = None) -> None:
        """Go back to the measured bound of a cell.

        Raises: NotFoundError if nothing was learned of it; StaleVersionError.
        """
        with self._edit(profile_id, expected_version) as (change, _row):
            stored = ProfileRepository(change.session).get(profile_id)
            learned = LearnedRepository(change.session, profile_id)
            before = learned.read().cells.get(cell)
            if before is None:
                raise NotFoundError(f"nothing was learned of guard cell {'-'.join(map(str, cell))}")
            after = dict(stored.profile.guard_cells).get(cell, stored.profile.guard_default_ratio)
            learned.forget_cell(cell)
            reset = Change(kind="reset", cell=cell, before=before, after=after, evidence="an operator")
            learned.record(reset, now=change.now)
            change.audit(
                "profile.reset-cell",
                subject=f"{profile_id} {cell_text(cell)}",
                before={"ratio": before},
                after={"ratio": after},
            )

    def reset(self, profile_id: int, *, expected_version: int | None = None) -> None:
        """Go back to the profile as it was measured. Raises: NotFoundError, StaleVersionError."""
        with self._edit(profile_id, expected_version) as (change, _row):
            learned = LearnedRepository(change.session, profile_id)
            known = learned.read()
            count = len(known.cells) + len(known.corrections)
            change.is_needless = not count
            learned.forget_all()
            learned.record(
                Change(kind="reset", before=float(count), after=0.0, evidence="an operator"), now=change.now
            )
            change.audit(
                "profile.reset", subject=str(profile_id), before={"learned": count}, after={"learned": 0}
            )

    @contextmanager
    def _change(self) -> Iterator[Changing]:
        with self._transactions.change() as change:
            change.profiles_changed = True
            yield change

    @contextmanager
    def _edit(self, profile_id: int, expected_version: int | None) -> Iterator[tuple[Changing, ProfileRow]]:
        with self._change() as change:
            row = ProfileRepository(change.session).row(profile_id)
            check_expected(expected_version, row.settings_version, f"profile {profile_id}")
            row.settings_version = change.version
            yield change, row

    @contextmanager
    def _activation(self, expected_version: int | None) -> Iterator[Changing]:
        with self._change() as change:
            profiles = ProfileRepository(change.session)
            check_expected(expected_version, profiles.active_version(), "the active profile")
            before = profiles.active_id()
            yield change
            after = profiles.active_id()
            change.audit(
                "profile.activation",
                subject="active",
                before={"profile_id": before},
                after={"profile_id": after},
            )


def _added(change: Changing, profile: MeasuredProfile, origin: str) -> StoredProfile:
    profiles = ProfileRepository(change.session)
    profile_id = profiles.add(profile, origin=origin, now=change.now, settings_version=change.version)
    stored = profiles.get(profile_id)
    named = {"name": stored.name, "version": stored.version, "origin": origin}
    change.audit("profile.add", subject=str(profile_id), after=named)
    return stored


def _check(profile: MeasuredProfile, hello: Hello | None, *, force: bool) -> None:
    if hello is not None and (wrong := unusable_because(profile, hello)) is not None:
        raise ConflictError(f"profile {profile.name} does not fit: {wrong}")
    if not force and (doubtful := refused_because(profile, hello)) is not None:
        raise ConflictError(
            f"profile {profile.name} is doubtful: {doubtful}; --force (REST: force) uses it all the same"
        )
