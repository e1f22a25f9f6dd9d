"""Which policy decides, among which splits, and which one shadows it: versioned, changed while serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from sqlalchemy import Text
from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.row import Row, UtcDateTime
from pdmuxd.controlplane.database.transactions import Changing, Transactions, check_expected
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError, PartitionError, PolicyError
from pdmuxd.engine.core.partitions import Partition, PartitionTable
from pdmuxd.engine.core.policies.base import PolicyContext
from pdmuxd.engine.core.policies.registry import build_policy, parse_policy

SPEC_MAX = 200
MOST_SPLITS = 24
"""Each has streams and graphs of its own on a real engine."""
HISTORY_LIMIT = 100

Pairs = tuple[tuple[int, int], ...]
"""(prefill_sms, decode_sms), by growing decode SMs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheduling:
    """What an operator has set; None is what the settings or the engine have by themselves."""

    policy: str | None = None
    """A specification; None: `engine.policy`."""
    partitions: Pairs | None = None
    """The splits that the policy chooses among; None: the engine's own."""
    shadow: str | None = None
    """A policy that decides on the same observations without acting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingRevision:
    """One edit; version 0 is as it was before the first."""

    version: int
    scheduling: Scheduling
    settings_version: int
    created_at: datetime | None


BEFORE_ANY = SchedulingRevision(version=0, scheduling=Scheduling(), settings_version=0, created_at=None)


class PolicyRevisionRow(Row, table=True):
    """Rows are added, never changed; the one of the highest version holds."""

    __tablename__ = "policy_revisions"

    version: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    policy: str | None = Field(default=None, max_length=SPEC_MAX)
    partitions: str | None = Field(default=None, sa_type=Text)
    """As `engine.sglang.partitions` is written: PREFILL,DECODE;..."""
    shadow: str | None = Field(default=None, max_length=SPEC_MAX)
    settings_version: int
    created_at: datetime = Field(sa_type=UtcDateTime)

    def value(self) -> SchedulingRevision:
        """Turn into the value that leaves the store."""
        partitions = None if self.partitions is None else read_pairs(self.partitions)
        return SchedulingRevision(
            version=self.version,
            scheduling=Scheduling(policy=self.policy, partitions=partitions, shadow=self.shadow),
            settings_version=self.settings_version,
            created_at=self.created_at,
        )


class SchedulingService:
    """Raises StoreError wherever the database fails."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def current(self) -> SchedulingRevision:
        with self._transactions.transaction() as session:
            return current_scheduling(session)

    def history(self, limit: int = HISTORY_LIMIT) -> list[SchedulingRevision]:
        """The newest revisions, newest first."""
        with self._transactions.transaction() as session:
            return _newest(session, limit)

    def set(
        self, scheduling: Scheduling, context: PolicyContext | None, *, expected_version: int | None = None
    ) -> SchedulingRevision:
        """Put it in force. `context`: of the engine that serves; without one, the device is not asked.

        Raises: InvalidValueError for what the device or the registry refuses; StaleVersionError.
        """
        checked = check_scheduling(scheduling, context)
        return self._change("policy.set", lambda _: checked, expected_version)

    def roll_back(
        self,
        context: PolicyContext | None,
        *,
        version: int | None = None,
        expected_version: int | None = None,
    ) -> SchedulingRevision:
        """Set what `version` was, or what held before the newest edit; 0 is what the settings have.

        Raises: NotFoundError, InvalidValueError, StaleVersionError.
        """

        def chosen(session: Session) -> Scheduling:
            current = current_scheduling(session)
            if not current.version and version is None:
                raise NotFoundError("no policy has been set, so there is none to go back to")
            wanted = current.version - 1 if version is None else version
            found = BEFORE_ANY if wanted == 0 else _find(session, wanted)
            return check_scheduling(found.scheduling, context)

        return self._change("policy.rollback", chosen, expected_version)

    def _change(
        self, action: str, choose: Callable[[Session], Scheduling], expected_version: int | None
    ) -> SchedulingRevision:
        with self._transactions.change() as change:
            before = current_scheduling(change.session)
            check_expected(expected_version, before.version, "the policy")
            scheduling = choose(change.session)
            if scheduling == before.scheduling:
                change.is_needless = True
                return before
            after = add_revision(change, before, scheduling)
            change.audit(action, subject="policy", before=as_told(before), after=as_told(after))
            return after


def add_revision(change: Changing, before: SchedulingRevision, scheduling: Scheduling) -> SchedulingRevision:
    """Append the revision that follows `before`; the caller audits it."""
    pairs = scheduling.partitions
    row = PolicyRevisionRow(
        version=before.version + 1,
        policy=scheduling.policy,
        partitions=None if pairs is None else write_pairs(pairs),
        shadow=scheduling.shadow,
        settings_version=change.version,
        created_at=change.now,
    )
    change.session.add(row)
    change.session.flush()
    change.scheduling_changed = True
    return row.value()


def check_scheduling(scheduling: Scheduling, context: PolicyContext | None) -> Scheduling:
    """The same, its splits in order. Raises: InvalidValueError naming the field and what is allowed."""
    pairs = scheduling.partitions
    if pairs is not None:
        pairs = tuple(sorted(set(pairs), key=lambda pair: pair[1]))
        if not 0 < len(pairs) <= MOST_SPLITS:
            raise InvalidValueError(
                "partitions", f"partitions has {len(pairs)} splits; allowed are 1 to {MOST_SPLITS}, or null"
            )
        if context is not None:
            splits = tuple(Partition(prefill_sms=prefill, decode_sms=decode) for prefill, decode in pairs)
            try:
                PartitionTable(rules=context.rules, splits=splits)
            except PartitionError as error:
                raise InvalidValueError("partitions", str(error)) from error
            context = replace(context, splits=splits)
    return Scheduling(
        policy=_checked("policy", scheduling.policy, context),
        partitions=pairs,
        shadow=_checked("shadow", scheduling.shadow, context),
    )


def _checked(field: str, spec: str | None, context: PolicyContext | None) -> str | None:
    if spec is None:
        return None
    spec = spec.strip()
    try:
        parse_policy(spec)
        if context is not None:
            build_policy(spec, context)
    except (PolicyError, PartitionError) as error:
        raise InvalidValueError(field, str(error)) from error
    return spec


def current_scheduling(session: Session) -> SchedulingRevision:
    """The revision that holds, within one transaction."""
    newest = _newest(session, 1)
    return newest[0] if newest else BEFORE_ANY


def write_pairs(pairs: Sequence[tuple[int, int]]) -> str:
    """Pairs as `engine.sglang.partitions` is written."""
    return ";".join(f"{prefill},{decode}" for prefill, decode in pairs)


def read_pairs(text: str) -> Pairs:
    """The other way round. Raises: ValueError for what is no such text."""
    pairs = (pair.split(",") for pair in text.split(";"))
    return tuple((int(prefill), int(decode)) for prefill, decode in pairs)


def _newest(session: Session, limit: int) -> list[SchedulingRevision]:
    statement = select(PolicyRevisionRow).order_by(col(PolicyRevisionRow.version).desc()).limit(limit)
    return [row.value() for row in session.exec(statement)]


def _find(session: Session, version: int) -> SchedulingRevision:
    row = session.get(PolicyRevisionRow, version)
    if row is None:
        raise NotFoundError(f"there is no version {version} of the policy")
    return row.value()


def as_told(revision: SchedulingRevision) -> dict[str, object]:
    """The scheduling as the audit keeps it."""
    pairs, scheduling = revision.scheduling.partitions, revision.scheduling
    return {
        "version": revision.version,
        "policy": scheduling.policy,
        "partitions": None if pairs is None else write_pairs(pairs),
        "shadow": scheduling.shadow,
    }
