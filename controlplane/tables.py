"""All tables, for the migrations to compare with the database."""

from __future__ import annotations

from pdmuxd.controlplane.admin_tokens import AdminTokenRow
from pdmuxd.controlplane.api_keys import ApiKeyRow
from pdmuxd.controlplane.audit import AuditRow
from pdmuxd.controlplane.history.rows import (
    AlarmRow,
    DecisionSummaryRow,
    HistoryRow,
    HistorySeriesRow,
    MarkRow,
    RefusalRow,
)
from pdmuxd.controlplane.limit_rows import KeyLimitRow, TenantLimitRow
from pdmuxd.controlplane.limits import TokenUseRow
from pdmuxd.controlplane.profiles.rows import (
    ActivationRow,
    LearnedCellRow,
    LearnedCorrectionRow,
    ProfileChangeRow,
    ProfileRow,
)
from pdmuxd.controlplane.rows import Row
from pdmuxd.controlplane.scheduling import PolicyRevisionRow
from pdmuxd.controlplane.settings_version import SettingsVersionRow
from pdmuxd.controlplane.slos import SloRevisionRow
from pdmuxd.controlplane.tenants import TenantRow

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
    PolicyRevisionRow,
)
METADATA = Row.metadata
