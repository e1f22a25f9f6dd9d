"""API keys: their rows and their repository. A secret is never here, only its digest."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from typing import Literal, get_args

from sqlalchemy import and_, bindparam, or_, update
from sqlalchemy import select as select_columns
from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.row import Row, UtcDateTime
from pdmuxd.controlplane.tenants.limit_rows import all_key_limits, key_limits
from pdmuxd.controlplane.tenants.limit_values import Limit
from pdmuxd.controlplane.tenants.records import KeyRecord, Scope
from pdmuxd.controlplane.tenants.tenants import TenantRow
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError

LABEL_MAX = 100
LABEL_ALLOWED = f"at most {LABEL_MAX} printable characters"
LABEL_PATTERN = (
    r"^[^\u0000-\u001f\u007f-\u00a0\u00ad\u200b-\u200f\u2028-\u202f\u2060-\u206f\ufeff\ufff9-\uffff]*$"
)
"""Without what moves the cursor, turns the direction or is not seen, so that a list shows what is stored."""
_LABEL = re.compile(LABEL_PATTERN)
SCOPES: tuple[Scope, ...] = get_args(Scope)
SCOPES_ALLOWED = f"one or more of {', '.join(SCOPES)}, each once"
DEFAULT_SCOPES: frozenset[Scope] = frozenset({"serve"})

KeyState = Literal["valid", "expired", "revoked"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is listed; `last4` are the last characters of its secret."""

    key_id: str
    tenant: str
    label: str
    scopes: tuple[Scope, ...]
    last4: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    """To about half a minute."""
    replaces: str | None
    """The key that this one was made for by a rotation."""
    version: int
    """The settings version of its last change."""

    def state(self, now: datetime) -> KeyState:
        if self.revoked_at is not None:
            return "revoked"
        return "expired" if self.expires_at is not None and now >= self.expires_at else "valid"


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedKey(ApiKey):
    """A key at the one moment when its secret is known; the repr does not show it."""

    secret: str = field(repr=False)


class ApiKeyRow(Row, table=True):
    """A key; revoked ones stay, so that it can be seen when they ended."""

    __tablename__ = "api_keys"

    key_id: str = Field(primary_key=True, max_length=20)
    tenant_id: int = Field(foreign_key="tenants.id", ondelete="CASCADE", index=True)
    label: str = Field(max_length=LABEL_MAX)
    scopes: str = Field(max_length=40, sa_column_kwargs={"server_default": "serve"})
    """Names with commas between."""
    secret_sha256: str = Field(max_length=64, unique=True)
    last4: str = Field(max_length=4)
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    replaces: str | None = Field(default=None, max_length=20)
    settings_version: int = Field(sa_column_kwargs={"server_default": "0"})

    def value(self, tenant: str) -> ApiKey:
        """Turn into the value that leaves the store."""
        return ApiKey(
            key_id=self.key_id,
            tenant=tenant,
            label=self.label,
            scopes=_in_order(self.scopes),
            last4=self.last4,
            created_at=self.created_at,
            expires_at=self.expires_at,
            revoked_at=self.revoked_at,
            last_used_at=self.last_used_at,
            replaces=self.replaces,
            version=self.settings_version,
        )


class ApiKeyRepository:
    """Keys, within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(
        self,
        tenant: str | None,
        *,
        after: str | None = None,
        limit: int | None = None,
        revoked: bool | None = None,
    ) -> list[ApiKey]:
        """The keys of one tenant or of all, oldest first; revoked ones too, or alone, or not.

        At most `limit`, and only those after the key `after`. Raises: NotFoundError if there is no `after`.
        """
        statement = (
            select(ApiKeyRow, TenantRow.name)
            .join(TenantRow, col(TenantRow.id) == col(ApiKeyRow.tenant_id))
            .order_by(col(ApiKeyRow.created_at), col(ApiKeyRow.key_id))
            .limit(limit)
        )
        if tenant is not None:
            statement = statement.where(TenantRow.name == tenant)
        if revoked is not None:
            is_good = col(ApiKeyRow.revoked_at).is_(None)
            statement = statement.where(~is_good if revoked else is_good)
        if after is not None:
            last, _ = self.get(after)
            same = and_(col(ApiKeyRow.created_at) == last.created_at, col(ApiKeyRow.key_id) > last.key_id)
            statement = statement.where(or_(col(ApiKeyRow.created_at) > last.created_at, same))
        return [row.value(name) for row, name in self._session.exec(statement)]

    def records(self, tenant: str | None = None) -> dict[str, KeyRecord]:
        """Each key that was not revoked, of one tenant or of all, by the SHA-256 of its secret."""
        statement = (
            select_columns(
                col(ApiKeyRow.secret_sha256),
                col(ApiKeyRow.key_id),
                col(TenantRow.name),
                col(ApiKeyRow.scopes),
                col(ApiKeyRow.expires_at),
            )
            .join(TenantRow, col(TenantRow.id) == col(ApiKeyRow.tenant_id))
            .where(col(ApiKeyRow.revoked_at).is_(None))
        )
        if tenant is not None:
            statement = statement.where(col(TenantRow.name) == tenant)
        limits = all_key_limits(self._session)
        return {
            sha256: _record(key_id, name, scopes, expires_at, limits.get(key_id, ()))
            for sha256, key_id, name, scopes, expires_at in self._session.execute(statement)
        }

    def record(self, row: ApiKeyRow, tenant: str) -> KeyRecord | None:
        """What the data plane sees of a key: nothing once it was revoked."""
        if row.revoked_at is not None:
            return None
        return _record(row.key_id, tenant, row.scopes, row.expires_at, key_limits(self._session, row.key_id))

    def add(self, row: ApiKeyRow) -> None:
        self._session.add(row)
        self._session.flush()

    def get(self, key_id: str) -> tuple[ApiKeyRow, str]:
        """The row and the name of its tenant. Raises: NotFoundError."""
        statement = (
            select(ApiKeyRow, TenantRow.name)
            .join(TenantRow, col(TenantRow.id) == col(ApiKeyRow.tenant_id))
            .where(ApiKeyRow.key_id == key_id)
        )
        known = key_id.isascii() and "\0" not in key_id
        found = self._session.exec(statement).one_or_none() if known else None
        if found is None:
            raise NotFoundError(f"there is no key {key_id[:40]!r}")
        return found

    def replacement(self, key_id: str) -> str | None:
        """The id of the key that replaces this one, if it was rotated."""
        statement = select(ApiKeyRow.key_id).where(ApiKeyRow.replaces == key_id)
        return self._session.exec(statement).first()

    def used(self, uses: Mapping[str, datetime]) -> None:
        """Note when keys were last used; one that is gone is passed over, none goes back in time."""
        table = ApiKeyRow.__table__  # type: ignore[attr-defined]
        at = bindparam("at", type_=UtcDateTime())
        statement = (
            update(table)
            .where(table.c.key_id == bindparam("key"))
            .where(or_(table.c.last_used_at.is_(None), table.c.last_used_at < at))
            .values(last_used_at=at)
        )
        self._session.connection().execute(
            statement, [{"key": key, "at": moment} for key, moment in uses.items()]
        )


def check_label(label: str) -> str:
    """Raises: InvalidValueError for a label that could not be shown."""
    if len(label) > LABEL_MAX or _LABEL.fullmatch(label) is None or _has_surrogates(label):
        raise InvalidValueError("label", f"label is {label[:LABEL_MAX]!r}; allowed are {LABEL_ALLOWED}")
    return label


def _has_surrogates(text: str) -> bool:
    """Halves of characters, which are no text and cannot be stored."""
    return any("\ud800" <= character <= "\udfff" for character in text)


def check_scopes(scopes: Iterable[str]) -> frozenset[Scope]:
    """Raises: InvalidValueError for none, an unknown one, or one that is given twice."""
    given = list(scopes)
    known = frozenset(scope for scope in SCOPES if scope in given)
    if not given or len(known) != len(given):
        raise InvalidValueError("scopes", f"scopes are {given[:8]!r}; allowed are {SCOPES_ALLOWED}")
    return known


def joined(scopes: Iterable[Scope]) -> str:
    """Scopes as the row keeps them."""
    chosen = frozenset(scopes)
    return ",".join(scope for scope in SCOPES if scope in chosen)


def _record(
    key_id: str, tenant: str, scopes: str, expires_at: datetime | None, limits: tuple[Limit, ...]
) -> KeyRecord:
    return KeyRecord(
        key_id=key_id,
        tenant=tenant,
        scopes=_as_set(scopes),
        expires_at_s=None if expires_at is None else expires_at.timestamp(),
        limits=limits,
    )


@cache
def _in_order(scopes: str) -> tuple[Scope, ...]:
    given = scopes.split(",")
    return tuple(scope for scope in SCOPES if scope in given)


@cache
def _as_set(scopes: str) -> frozenset[Scope]:
    return frozenset(_in_order(scopes))
