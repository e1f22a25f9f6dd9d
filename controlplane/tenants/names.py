"""The names of all tenants in their order."""

from __future__ import annotations

from collections.abc import Mapping

from pdmuxd.controlplane.tenants.records import TenantRecord


class TenantNames:
    """Sorts once while the tenants stay as they are: thousands take milliseconds of the event loop."""

    def __init__(self) -> None:
        self._kept: tuple[Mapping[str, TenantRecord] | None, tuple[str, ...]] = (None, ())

    def __call__(self, tenants: Mapping[str, TenantRecord]) -> tuple[str, ...]:
        """Sorted."""
        if self._kept[0] is not tenants:
            self._kept = tenants, tuple(sorted(tenants))
        return self._kept[1]
