"""Shares of limits: how much of each limit one node may use, so that all nodes together stay within it.

A node holds its share until it gives it back, or is not heard for LEASE. What a budget has spent is in
`token_use`; shares are of the rest, and become smaller in the transaction that stores what was spent. So what
is spent and all shares together are never more than the limit. Safe in several threads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from sqlalchemy import BigInteger, delete, func, select, text, update
from sqlmodel import Field, Session, col

from pdmuxd.controlplane.database.heartbeat import HeartbeatRow
from pdmuxd.controlplane.database.row import Row, UtcDateTime
from pdmuxd.controlplane.services.store import Store
from pdmuxd.controlplane.tenants.tenants import TenantRow
from pdmuxd.controlplane.tenants.token_use import TokenUseRow

LEASE = timedelta(seconds=75)
"""Longer than a window of a minute: what a node used that died is over when its share is free again."""


class LimitShareRow(Row, table=True):
    """One node's share of one limit."""

    __tablename__ = "limit_shares"

    subject: str = Field(primary_key=True, max_length=80)
    """`tenant NAME` or `key ID`."""
    name: str = Field(primary_key=True, max_length=45)
    """Of the limit; of a budget with the first day of its period."""
    node: str = Field(primary_key=True, max_length=32)
    amount: int = Field(sa_type=BigInteger)
    until: datetime = Field(sa_type=UtcDateTime)


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """A limit as all nodes share it."""

    subject: str
    name: str
    value: int
    """In tokens, or of money in billionths of the currency."""
    tenant: str
    key_id: str
    """Empty for the whole tenant."""
    first_day: date | None = None
    """Of a budget's period; None for what is not stored as use."""
    count_cached: bool = False
    is_money: bool = False


class LimitShares:
    """The shares of one node. Any method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ask(self, account: Account, wanted: int) -> int:
        """Make this node's share `wanted`, or as much as the others leave; the share."""
        node, now = self._store.node, self._store.clock()
        with self._store.transaction() as session:
            # Whoever asks for the same limit waits for the end of this transaction.
            session.connection().execute(
                text("SELECT pg_advisory_xact_lock(hashtextextended(:account, 0))"),
                {"account": f"{account.subject}/{account.name}"},
            )
            of_limit = (
                col(LimitShareRow.subject) == account.subject,
                col(LimitShareRow.name) == account.name,
            )
            session.connection().execute(
                delete(LimitShareRow).where(*of_limit, col(LimitShareRow.until) < now)
            )
            others = session.connection().execute(
                select(func.coalesce(func.sum(LimitShareRow.amount), 0)).where(
                    *of_limit, col(LimitShareRow.node) != node
                )
            )
            free = account.value - int(others.scalar_one()) - _spent(session, account)
            amount = max(0, min(wanted, free))
            session.merge(
                LimitShareRow(
                    subject=account.subject, name=account.name, node=node, amount=amount, until=now + LEASE
                )
            )
            session.commit()
        return amount

    def renew(self, amounts: Mapping[tuple[str, str], int]) -> set[tuple[str, str]]:
        """Go on with these shares, none larger than it was; returns those that had ended meanwhile."""
        node, now, ended = self._store.node, self._store.clock(), set()
        with self._store.transaction() as session:
            for (subject, name), amount in amounts.items():
                mine = (
                    col(LimitShareRow.subject) == subject,
                    col(LimitShareRow.name) == name,
                    col(LimitShareRow.node) == node,
                )
                if not amount:
                    session.connection().execute(delete(LimitShareRow).where(*mine))
                    continue
                going_on = update(LimitShareRow).where(*mine, col(LimitShareRow.until) >= now)
                done = session.connection().execute(going_on.values(amount=amount, until=now + LEASE))
                if not done.rowcount:
                    ended.add((subject, name))
            session.commit()
        return ended

    def nodes(self) -> int:
        """How many daemons have written in the last half minute; at least this one."""
        since = self._store.clock() - timedelta(seconds=30)
        with self._store.transaction() as session:
            count = select(func.count()).select_from(HeartbeatRow).where(col(HeartbeatRow.at) >= since)
            return max(1, int(session.connection().execute(count).scalar_one()))


def spend(session: Session, node: str, spent: Iterable[tuple[str, str, int]]) -> None:
    """Make shares of (subject, name) smaller by what is stored as used in the same transaction."""
    for subject, name, amount in spent:
        left = col(LimitShareRow.amount) - amount
        mine = (
            col(LimitShareRow.subject) == subject,
            col(LimitShareRow.name) == name,
            col(LimitShareRow.node) == node,
        )
        session.connection().execute(update(LimitShareRow).where(*mine).values(amount=func.greatest(left, 0)))


def _spent(session: Session, account: Account) -> int:
    """What all nodes have stored as used of a budget."""
    if account.first_day is None:
        return 0
    kinds = [TokenUseRow.input_tokens, TokenUseRow.output_tokens]
    if account.is_money:
        kinds = [TokenUseRow.cost_nanos]
    elif account.count_cached:
        kinds.append(TokenUseRow.cached_tokens)
    statement = (
        select(*(func.coalesce(func.sum(col(kind)), 0) for kind in kinds))
        .join(TenantRow, col(TenantRow.id) == col(TokenUseRow.tenant_id))
        .where(
            col(TenantRow.name) == account.tenant,
            col(TokenUseRow.key_id) == account.key_id,
            col(TokenUseRow.day) >= account.first_day,
        )
    )
    return sum(int(amount) for amount in session.connection().execute(statement).one())
