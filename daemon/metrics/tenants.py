"""Which tenants have series of their own: a label must not have as many values as somebody likes to make."""

from __future__ import annotations

from collections.abc import Iterable

NO_TENANT = ""
"""Without a good key, or of a tenant that is not known."""
REST = "_rest"
"""All tenants beyond the limit together; no tenant can be called so."""


class TenantLabels:
    """The first `limit` tenants that are active get a label of their own; all, if there are no more."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._known: frozenset[str] = frozenset()
        self._own: set[str] = set()

    @property
    def own(self) -> frozenset[str]:
        """The tenants with a label of their own."""
        return frozenset(self._own)

    def use(self, names: Iterable[str]) -> set[str]:
        """Only `names` may be labels from now on; returns those that were and are no longer."""
        self._known = frozenset(names)
        gone = self._own - self._known
        self._own -= gone
        if len(self._known) <= self._limit:
            self._own |= self._known
        return gone

    def of(self, tenant: str) -> str:
        """The value of the label for what this tenant does."""
        if tenant in self._own:
            return tenant
        if tenant not in self._known:
            return NO_TENANT
        if len(self._own) >= self._limit:
            return REST
        self._own.add(tenant)
        return tenant
