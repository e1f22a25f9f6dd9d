"""API keys: their rows and their repository. A secret is never here, only its digest."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.rows import Row, UtcDateTime
from pdmuxd.controlplane.tenants import TenantRow
from pdmuxd.engine.core.errors import InvalidValueError, NotFoundError

LABEL_MAX = 100
LABEL_ALLOWED = f"at most {LABEL_MAX} printable characters"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is listed; `last4` are the last characters of its secret."""

    key_id: str
    tenant: str
    label: str
    last4: str
    created_at: datetime
    revoked_at: datetime | None


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
    secret_sha256: str = Field(max_length=64, unique=True)
    last4: str = Field(max_length=4)
    created_at: datetime = Field(sa_type=UtcDateTime)
    revoked_at: datetime | None = Field(default=None, sa_type=UtcDateTime)

    def value(self, tenant: str) -> ApiKey:
        """Turn into the value that leaves the store."""
        return ApiKey(
            key_id=self.key_id,
            tenant=tenant,
            label=self.label,
            last4=self.last4,
            created_at=self.created_at,
            revoked_at=self.revoked_at,
        )


class ApiKeyRepository:
    """Keys, within one transaction."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def list(self, tenant: str | None) -> list[ApiKey]:
        """The keys of one tenant or of all, oldest first, revoked ones too."""
        statement = (
            select(ApiKeyRow, TenantRow.name)
            .join(TenantRow, col(TenantRow.id) == col(ApiKeyRow.tenant_id))
            .order_by(col(ApiKeyRow.created_at), col(ApiKeyRow.key_id))
        )
        if tenant is not None:
            statement = statement.where(TenantRow.name == tenant)
        return [row.value(name) for row, name in self._session.exec(statement)]

    def digests(self) -> dict[str, str]:
        """SHA-256 of each key that was not revoked, and the name of its tenant."""
        statement = (
            select(ApiKeyRow.secret_sha256, TenantRow.name)
            .join(TenantRow, col(TenantRow.id) == col(ApiKeyRow.tenant_id))
            .where(col(ApiKeyRow.revoked_at).is_(None))
        )
        return dict(self._session.exec(statement).all())

    def add(self, row: ApiKeyRow) -> None:
        """Add a key. Raises: InvalidValueError for a label that could not be shown."""
        if len(row.label) > LABEL_MAX or not row.label.isprintable():
            raise InvalidValueError(
                "label", f"label is {row.label[:LABEL_MAX]!r}; allowed are {LABEL_ALLOWED}"
            )
        self._session.add(row)
        self._session.flush()

    def get(self, key_id: str) -> tuple[ApiKeyRow, str]:
        """The row and the name of its tenant. Raises: NotFoundError."""
        statement = (
            select(ApiKeyRow, TenantRow.name)
            .join(TenantRow, col(TenantRow.id) == col(ApiKeyRow.tenant_id))
            .where(ApiKeyRow.key_id == key_id)
        )
        found = self._session.exec(statement).one_or_none() if key_id.isascii() else None
        if found is None:
            raise NotFoundError(f"there is no key {key_id!r}")
        return found
