"""Admin tokens: named, hashed rows that can be revoked, beside the token in the file of the first start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Literal

from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.row import Row, UtcDateTime
from pdmuxd.controlplane.database.transactions import Changing, Transactions, check_expected
from pdmuxd.controlplane.tenants.credentials import ADMIN_TOKEN_PREFIX, LAST_CHARACTERS, digest, new_secret
from pdmuxd.controlplane.tenants.expiry import check_expiry
from pdmuxd.controlplane.tenants.records import AdminTokenRecord
from pdmuxd.controlplane.tenants.tenant_fields import NAME, NAME_ALLOWED, NAME_MAX
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, NotFoundError

TokenRole = Literal["admin", "reader"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminToken:
    """A token as it is listed."""

    name: str
    role: TokenRole
    last4: str
    created_by: str
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    version: int
    """The settings version of its last change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuedAdminToken(AdminToken):
    """A token at the one moment when its secret is known; the repr does not show it."""

    secret: str = field(repr=False)


class AdminTokenRow(Row, table=True):
    """A token; a name is never given again, so that the audit names one person or program."""

    __tablename__ = "admin_tokens"

    name: str = Field(primary_key=True, max_length=NAME_MAX)
    role: str = Field(max_length=10)
    secret_sha256: str = Field(max_length=64, unique=True)
    last4: str = Field(max_length=4)
    created_by: str = Field(max_length=100)
    created_at: datetime = Field(sa_type=UtcDateTime)
    expires_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    last_used_at: datetime | None = Field(default=None, sa_type=UtcDateTime)
    settings_version: int

    def value(self) -> AdminToken:
        """Turn into the value that leaves the store."""
        return AdminToken(
            name=self.name,
            role="admin" if self.role == "admin" else "reader",
            last4=self.last4,
            created_by=self.created_by,
            created_at=self.created_at,
            expires_at=self.expires_at,
            revoked_at=self.revoked_at,
            last_used_at=self.last_used_at,
            version=self.settings_version,
        )


class AdminTokens:
    """What can be done to admin tokens; any method may raise StoreError."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    def issue(
        self, name: str, *, role: TokenRole = "admin", expires_at: datetime | None = None
    ) -> IssuedAdminToken:
        """Make a token; its secret is in the answer only.

        Raises: InvalidValueError; ConflictError if the name was ever given.
        """
        if not NAME.fullmatch(name):
            raise InvalidValueError("name", f"name is {name[:80]!r}; allowed are {NAME_ALLOWED}")
        secret = new_secret(ADMIN_TOKEN_PREFIX)
        with self._transactions.change() as change:
            check_expiry(expires_at, now=change.now)
            if change.session.get(AdminTokenRow, name) is not None:
                raise ConflictError(f"there is or was an admin token {name!r}; a name is not given twice")
            row = AdminTokenRow(
                name=name,
                role=role,
                secret_sha256=digest(secret),
                last4=secret[-LAST_CHARACTERS:],
                created_by=change.caller.name,
                created_at=change.now,
                expires_at=expires_at,
                settings_version=change.version,
            )
            change.session.add(row)
            change.session.flush()
            token = row.value()
            self._changed(change, "admin-token.issue", before=None, after=token)
        return IssuedAdminToken(**asdict(token), secret=secret)

    def list(self) -> list[AdminToken]:
        """All of them by name, revoked ones too."""
        with self._transactions.transaction() as session:
            return [row.value() for row in session.exec(select(AdminTokenRow).order_by(AdminTokenRow.name))]

    def get(self, name: str) -> AdminToken:
        """One. Raises: NotFoundError."""
        with self._transactions.transaction() as session:
            return _row(session, name).value()

    def revoke(self, name: str, *, expected_version: int | None = None) -> AdminToken:
        """End a token for good; one that was revoked before stays as it is.

        Raises: NotFoundError, StaleVersionError.
        """
        with self._transactions.change() as change:
            row = _row(change.session, name)
            before = row.value()
            check_expected(expected_version, before.version, f"admin token {name}")
            change.is_needless = row.revoked_at is not None
            if row.revoked_at is None:
                row.revoked_at, row.settings_version = change.now, change.version
                self._changed(change, "admin-token.revoke", before=before, after=row.value())
            return row.value()

    def used(self, uses: Mapping[str, datetime]) -> None:
        """Note when tokens were last used. Raises no settings version, since no directory shows it."""
        if not uses:
            return
        with self._transactions.writing() as session:
            for name, at in uses.items():
                row = session.get(AdminTokenRow, name)
                if row is not None and (row.last_used_at is None or row.last_used_at < at):
                    row.last_used_at = at
            session.commit()

    def _changed(
        self, change: Changing, action: str, *, before: AdminToken | None, after: AdminToken
    ) -> None:
        change.tokens_changed = True
        change.audit(action, subject=after.name, before=before, after=after)


def admin_token_records(session: Session) -> dict[str, AdminTokenRecord]:
    """Each token that was not revoked, by the SHA-256 of its secret."""
    statement = select(AdminTokenRow).where(col(AdminTokenRow.revoked_at).is_(None))
    return {
        row.secret_sha256: AdminTokenRecord(
            name=row.name,
            role=row.value().role,
            expires_at_s=None if row.expires_at is None else row.expires_at.timestamp(),
        )
        for row in session.exec(statement)
    }


def _row(session: Session, name: str) -> AdminTokenRow:
    row = session.get(AdminTokenRow, name) if NAME.fullmatch(name) else None
    if row is None:
        raise NotFoundError(f"there is no admin token {name[:80]!r}")
    return row
