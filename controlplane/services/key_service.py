"""What can be done to API keys: issue, list, rotate, revoke, and note when they were used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from datetime import datetime, timedelta

from pdmuxd.controlplane.database.transactions import check_expected
from pdmuxd.controlplane.services.store import Change, Store
from pdmuxd.controlplane.tenants.api_keys import (
    DEFAULT_SCOPES,
    ApiKey,
    ApiKeyRepository,
    ApiKeyRow,
    IssuedKey,
    check_label,
    check_scopes,
    joined,
)
from pdmuxd.controlplane.tenants.credentials import LAST_CHARACTERS, digest, new_key_id, new_secret
from pdmuxd.controlplane.tenants.expiry import check_expiry
from pdmuxd.controlplane.tenants.limit_rows import copy_key_limits
from pdmuxd.controlplane.tenants.tenants import TenantRepository
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, NotFoundError

OVERLAP_RANGE_S = (0, 30 * 86400)
DEFAULT_OVERLAP_S = 86400
"""A day: time to bring the new secret to every client before the old one ends."""


class Keys:
    """Keys of all tenants; any method may raise StoreError."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def issue(
        self,
        tenant: str,
        label: str = "",
        *,
        scopes: Iterable[str] = DEFAULT_SCOPES,
        expires_at: datetime | None = None,
    ) -> IssuedKey:
        """Make a key; its secret is in the answer only. Raises: NotFoundError, InvalidValueError."""
        check_label(label)
        chosen = joined(check_scopes(scopes))
        with self._store.change() as change:
            check_expiry(expires_at, now=change.now)
            return _add(change, tenant, label=label, scopes=chosen, expires_at=expires_at, replaces=None)

    def list(
        self,
        tenant: str | None = None,
        *,
        after: str | None = None,
        limit: int | None = None,
        revoked: bool | None = None,
    ) -> list[ApiKey]:
        """The keys of one tenant or of all, oldest first; revoked ones too, or alone, or not.

        Raises: NotFoundError.
        """
        with self._store.transaction() as session:
            if tenant is not None:
                TenantRepository(session).row(tenant)
            return ApiKeyRepository(session).list(tenant, after=after, limit=limit, revoked=revoked)

    def get(self, key_id: str, *, of_tenant: str | None = None) -> ApiKey:
        """One key; with `of_tenant` only if it is that tenant's. Raises: NotFoundError."""
        with self._store.transaction() as session:
            row, tenant = ApiKeyRepository(session).get(key_id)
            _require_owner(key_id, tenant, of_tenant)
            return row.value(tenant)

    def rotate(
        self,
        key_id: str,
        *,
        overlap_s: int = DEFAULT_OVERLAP_S,
        of_tenant: str | None = None,
        expected_version: int | None = None,
    ) -> IssuedKey:
        """Make a key that takes the place of this one, which ends `overlap_s` later, or before by itself.

        Label, scopes, lifetime and limits are those of the old key. Raises: NotFoundError, InvalidValueError;
        ConflictError for a key that has ended or was rotated before; StaleVersionError.
        """
        low, high = OVERLAP_RANGE_S
        if not low <= overlap_s <= high:
            raise InvalidValueError("overlap_s", f"overlap_s is {overlap_s}; allowed are {low} to {high}")
        with self._store.change() as change:
            row, tenant = change.keys.get(key_id)
            _require_owner(key_id, tenant, of_tenant)
            before = row.value(tenant)
            check_expected(expected_version, before.version, f"key {key_id}")
            if (state := before.state(change.now)) != "valid":
                raise ConflictError(f"key {key_id} is {state}; issue a new one instead")
            if (successor := change.keys.replacement(key_id)) is not None:
                raise ConflictError(f"key {key_id} was rotated before; its successor is {successor}")
            lifetime = None if before.expires_at is None else before.expires_at - before.created_at
            end = change.now + timedelta(seconds=overlap_s)
            row.expires_at = end if before.expires_at is None else min(end, before.expires_at)
            row.settings_version = change.version
            change.keys_changed[row.secret_sha256] = change.keys.record(row, tenant)
            change.audit("key.rotate", subject=key_id, tenant=tenant, before=before, after=row.value(tenant))
            return _add(
                change,
                tenant,
                label=before.label,
                scopes=joined(before.scopes),
                expires_at=None if lifetime is None else change.now + lifetime,
                replaces=key_id,
            )

    def revoke(
        self, key_id: str, *, of_tenant: str | None = None, expected_version: int | None = None
    ) -> ApiKey:
        """End a key for good; one that was revoked before stays as it is.

        Raises: NotFoundError, StaleVersionError.
        """
        with self._store.change() as change:
            row, tenant = change.keys.get(key_id)
            _require_owner(key_id, tenant, of_tenant)
            before = row.value(tenant)
            check_expected(expected_version, before.version, f"key {key_id}")
            change.is_needless = row.revoked_at is not None
            if row.revoked_at is not None:
                return before
            row.revoked_at, row.settings_version = change.now, change.version
            change.keys_changed[row.secret_sha256] = None
            after = replace(before, revoked_at=change.now, version=change.version)
            change.audit("key.revoke", subject=key_id, tenant=tenant, before=before, after=after)
            return after

    def used(self, uses: Mapping[str, datetime]) -> None:
        """Note when keys were last used. Raises no settings version, since no directory shows it."""
        if uses:
            with self._store.writing() as session:
                ApiKeyRepository(session).used(uses)
                session.commit()


def _add(
    change: Change,
    tenant: str,
    *,
    label: str,
    scopes: str,
    expires_at: datetime | None,
    replaces: str | None,
) -> IssuedKey:
    secret = new_secret()
    row = ApiKeyRow(
        key_id=new_key_id(),
        tenant_id=change.tenants.id_of(tenant),
        label=label,
        scopes=scopes,
        secret_sha256=digest(secret),
        last4=secret[-LAST_CHARACTERS:],
        created_at=change.now,
        expires_at=expires_at,
        replaces=replaces,
        settings_version=change.version,
    )
    change.keys.add(row)
    if replaces is not None:
        copy_key_limits(change.session, replaces, row.key_id)
    change.keys_changed[row.secret_sha256] = change.keys.record(row, tenant)
    key = row.value(tenant)
    change.audit("key.issue", subject=key.key_id, tenant=tenant, after=key)
    return IssuedKey(**asdict(key), secret=secret)


def _require_owner(key_id: str, tenant: str, wanted: str | None) -> None:
    """Whether another tenant has a key of that id is nobody's business: it is not found."""
    if wanted is not None and tenant != wanted:
        raise NotFoundError(f"there is no key {key_id[:40]!r}")
