"""The Tenants screen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from pdmuxd.tui.client.wire import AttainmentOut, TenantOut
from pdmuxd.tui.shell.filter_box import FilterBox
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.show.tenants.rows import TenantRow
from pdmuxd.tui.tenants.table import TenantTable
from pdmuxd.tui.tenants.tenant import TenantScreen

MOST = 500
"""Tenants of which the screen asks more than events say."""


class TenantsScreen(ConsoleScreen):
    """Enter opens a tenant."""

    NAME = "tenants"
    HELP_TEXT = """\
Met: the share of the last hour that met its target, the worse of TTFT (requests) and TBT (gaps between
tokens). Budget: what is left of the misses that the target allows in an hour; negative when more were missed.
Burn: how fast it goes, over 5 minutes; above 1 it does not last. TTFT and TBT: 99th percentiles of the
requests that ended in the last minute, TBT of all their gaps; ! above the target.
In fl.: in flight. Wait: those without a first token. Refused: since the daemon's start. The strictest tenant
that decodes sets the split for all: decode is one batch on one partition."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "sort", "Sort"),
        Binding("slash", "filter", "Filter", key_display="/"),
    ]

    def body(self) -> Iterable[Widget]:
        yield TenantTable(opened=self._open)
        yield FilterBox(placeholder="part of a tenant's name", wanted=self._filter)

    async def fetch(self) -> None:
        """Ask for what events do not carry: tenants without traffic, targets, refusals."""
        answers = self.console.answers
        answers.tenants, answers.attainment = await asyncio.gather(
            self.rest.ask(self.rest.api.list_tenants(), tuple[TenantOut, ...]),
            self.rest.ask(self.rest.api.get_attainment(active=True, limit=MOST), AttainmentOut),
        )

    def action_sort(self) -> None:
        self.query_one(TenantTable).action_sort()

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def _filter(self, typed: str) -> None:
        table = self.query_one(TenantTable)
        table.wanted = typed.strip()
        table.repaint()

    def _open(self, tenant: TenantRow) -> None:
        self.app.push_screen(TenantScreen(tenant.name))
