"""SLO revisions: every set of targets a tenant ever had; the one of the highest version holds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from sqlmodel import Field, Session, col, select

from pdmuxd.controlplane.database.row import Row, UtcDateTime
from pdmuxd.engine.core.errors import StoreError
from pdmuxd.engine.core.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class SloRevision:
    """One edit of a tenant's targets: its own `version`, and the settings version it came with."""

    tenant: str
    version: int
    slo: Slo
    settings_version: int
    created_at: datetime


class SloRevisionRow(Row, table=True):
    """Targets in seconds. Rows are added, never changed: they are the history."""

    __tablename__ = "slo_revisions"

    tenant_id: int = Field(primary_key=True, foreign_key="tenants.id", ondelete="CASCADE")
    version: int = Field(primary_key=True)
    ttft_fixed_s: float
    ttft_per_1k_new_tokens_s: float
    tbt_s: float
    attainment_ratio: float
    settings_version: int
    created_at: datetime = Field(sa_type=UtcDateTime)
    e2e_s: float | None = None

    def slo(self) -> Slo:
        """Turn into the core's value."""
        return Slo(
            ttft_fixed_s=self.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=self.ttft_per_1k_new_tokens_s,
            tbt_s=self.tbt_s,
            attainment_ratio=self.attainment_ratio,
            e2e_s=self.e2e_s,
        )

    def value(self, tenant: str) -> SloRevision:
        """Turn into the value that leaves the store."""
        return SloRevision(
            tenant=tenant,
            version=self.version,
            slo=self.slo(),
            settings_version=self.settings_version,
            created_at=self.created_at,
        )


class SloRepository:
    """The revisions of one tenant, within one transaction."""

    def __init__(self, session: Session, *, tenant_id: int, tenant: str) -> None:
        self._session = session
        self._tenant_id = tenant_id
        self._tenant = tenant

    def history(self, limit: int) -> list[SloRevision]:
        """The newest `limit` revisions, newest first; the first of them holds."""
        statement = (
            select(SloRevisionRow)
            .where(SloRevisionRow.tenant_id == self._tenant_id)
            .order_by(col(SloRevisionRow.version).desc())
            .limit(limit)
        )
        return [row.value(self._tenant) for row in self._session.exec(statement)]

    def current(self) -> SloRevision:
        """The revision that holds. Raises: StoreError if the tenant has lost its targets."""
        newest = self.history(1)
        if not newest:
            raise StoreError(f"tenant {self._tenant} has no targets in the database; restore a backup")
        return newest[0]

    def add(self, slo: Slo, *, version: int, settings_version: int, now: datetime) -> SloRevision:
        row = SloRevisionRow(
            tenant_id=self._tenant_id,
            version=version,
            ttft_fixed_s=slo.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=slo.ttft_per_1k_new_tokens_s,
            tbt_s=slo.tbt_s,
            attainment_ratio=slo.attainment_ratio,
            e2e_s=slo.e2e_s,
            settings_version=settings_version,
            created_at=now,
        )
        self._session.add(row)
        self._session.flush()
        return row.value(self._tenant)
