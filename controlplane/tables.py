"""All tables, for the migrations to compare with the database."""

from __future__ import annotations

from pdmuxd.controlplane.database.audit import AuditRow
from pdmuxd.controlplane.database.heartbeat import HeartbeatRow
from pdmuxd.controlplane.database.row import Row
from pdmuxd.controlplane.database.settings_version import SettingsVersionRow
from pdmuxd.controlplane.history.ledger import LedgerRow
from pdmuxd.controlplane.history.rows import (
    AlarmRow,
    DecisionSummaryRow,
    HistoryRow,
    HistorySeriesRow,
    IncidentRow,
    MarkRow,
    RefusalRow,
)
from pdmuxd.controlplane.node.scheduling import PolicyRevisionRow
from pdmuxd.controlplane.profiles.rows import (
    ActivationRow,
    LearnedCellRow,
    LearnedCorrectionRow,
    ProfileChangeRow,
    ProfileRow,
)
from pdmuxd.controlplane.services.limit_shares import LimitShareRow
from pdmuxd.controlplane.tenants.admin_tokens import AdminTokenRow
from pdmuxd.controlplane.tenants.api_keys import ApiKeyRow
from pdmuxd.controlplane.tenants.limit_rows import KeyLimitRow, TenantLimitRow
from pdmuxd.controlplane.tenants.prices import PriceListRow, PriceRow
from pdmuxd.controlplane.tenants.slo_revisions import SloRevisionRow
from pdmuxd.controlplane.tenants.tenants import TenantRow
from pdmuxd.controlplane.tenants.token_use import TokenUseRow

TABLES: tuple[type[Row], ...] = (
    SettingsVersionRow,
    TenantRow,
    SloRevisionRow,
    TenantLimitRow,
    ApiKeyRow,
    KeyLimitRow,
    TokenUseRow,
    AdminTokenRow,
    AuditRow,
    ProfileRow,
    ActivationRow,
    LearnedCellRow,
    LearnedCorrectionRow,
    ProfileChangeRow,
    HistorySeriesRow,
    HistoryRow,
    RefusalRow,
    DecisionSummaryRow,
    MarkRow,
    AlarmRow,
    IncidentRow,
    PolicyRevisionRow,
    HeartbeatRow,
    LedgerRow,
    LimitShareRow,
    PriceListRow,
    PriceRow,
)
METADATA = Row.metadata
