"""What is stored twice must be the same: targets, as their tenants have them and as the audit has them.

SQLite's own check knows the form of its pages; of a number in which a bit has flipped it says nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from sqlalchemy import Connection, select
from sqlmodel import col

from pdmuxd.controlplane.database import sqlite
from pdmuxd.controlplane.database.audit import APPLIED, AuditRow
from pdmuxd.controlplane.database.opening import open_database, store_errors
from pdmuxd.controlplane.tenants.slo_revisions import SloRevisionRow
from pdmuxd.controlplane.tenants.tenants import TenantRow
from pdmuxd.engine.core.errors import SloError, StoreError
from pdmuxd.engine.core.slo import Slo
from pdmuxd.migrations import head_revision

_FIELDS = ("ttft_fixed_s", "ttft_per_1k_new_tokens_s", "tbt_s", "attainment_ratio", "e2e_s")


def check(url: str) -> str:
    """Read the whole database, compare what it holds twice, and return its schema revision.

    Raises: StoreError if it is missing, damaged, or of another revision than this version's.
    """
    engine = open_database(url)
    try:
        with store_errors(engine), engine.connect() as connection:
            if connection.dialect.name == "sqlite":
                sqlite.require_whole(connection)
            require_targets_as_audited(connection)
    finally:
        engine.dispose()
    return head_revision()


def require_targets_as_audited(connection: Connection) -> None:
    """Raise StoreError for targets that are not allowed, or not those that the audit has of their edit.

    Edits whose audit is no longer kept are only looked at by themselves.
    """
    name = sqlite.name_of(connection.engine.url)
    audited = dict(_audited(connection, name))
    revisions = select(
        col(TenantRow.name),
        col(SloRevisionRow.version),
        col(SloRevisionRow.settings_version),
        *(getattr(SloRevisionRow, field) for field in _FIELDS),
    ).join(TenantRow, col(TenantRow.id) == col(SloRevisionRow.tenant_id))
    for tenant, version, settings_version, *values in connection.execute(revisions):
        found = dict(zip(_FIELDS, values, strict=True))
        where = f"{name} is damaged: version {version} of the targets of tenant {tenant}"
        try:
            Slo(**found)
        except (SloError, TypeError) as error:
            raise StoreError(f"{where} is not allowed: {error}; restore a backup") from error
        expected = audited.get((tenant, settings_version), found)
        for field in _FIELDS:
            if found[field] != expected.get(field):
                raise StoreError(
                    f"{where} has {field} {found[field]}, the audit of that edit {expected.get(field)}; "
                    "set the targets once more, or restore a backup"
                )


def _audited(connection: Connection, name: str) -> Iterator[tuple[tuple[str, int], dict[str, float]]]:
    entries = select(
        col(AuditRow.id),
        col(AuditRow.tenant),
        col(AuditRow.settings_version),
        col(AuditRow.action),
        col(AuditRow.after),
    ).where(col(AuditRow.action).in_(("slo.set", "tenant.create", APPLIED)))
    for entry_id, tenant, settings_version, action, after in connection.execute(entries):
        try:
            state = msgspec.json.decode(after or "null")
            if action == APPLIED:
                for name, fields in state["tenants"].items():
                    if fields is not None and "slo" in fields:
                        yield (name, settings_version), fields["slo"]
                continue
            yield (tenant or "", settings_version), state["slo"] if action == "tenant.create" else state
        except (msgspec.DecodeError, AttributeError, KeyError, TypeError) as error:
            raise StoreError(
                f"{name} is damaged: entry {entry_id} of the audit cannot be read: {error}"
            ) from error
