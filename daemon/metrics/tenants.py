"""Which tenants have series of their own: the number of values of a label must be bounded."""

from __future__ import annotations

from collections.abc import Iterable

NO_TENANT = ""
"""The label of requests without a valid key, or of an unknown tenant."""
REST = "_rest"
"""The label of all tenants beyond the limit together; a tenant cannot have this name."""


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
        """The label under which this tenant is counted."""
        if tenant in self._own:
            return tenant
        if tenant not in self._known:
            return NO_TENANT
        if len(self._own) >= self._limit:
            return REST
        self._own.add(tenant)
        return tenant
