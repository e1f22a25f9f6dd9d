"""The Overview: who misses what and why, first."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widget import Widget

from pdmuxd.tui.client.wire import TenantOut
from pdmuxd.tui.overview.table import WorstTenants
from pdmuxd.tui.shell.panel import PanelSpec, css_of
from pdmuxd.tui.shell.past import Past
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.show.overview.decision import decision
from pdmuxd.tui.show.overview.gpu import gpu
from pdmuxd.tui.show.overview.history import history
from pdmuxd.tui.show.overview.lately import lately
from pdmuxd.tui.show.overview.load import load
from pdmuxd.tui.show.overview.verdict import verdict
from pdmuxd.tui.show.overview.waiting import waiting
from pdmuxd.tui.show.overview.worst import worst
from pdmuxd.tui.show.tenants.rows import TenantRow, tenant_rows

VERDICT = PanelSpec("verdict", verdict, "height: 4;", is_slow=True)
LATELY = PanelSpec("lately", lately, "height: 3;", is_slow=True)
NOW = (
    PanelSpec("gpu", gpu, "height: 4;"),
    PanelSpec("load", load, "height: 3;", is_slow=True),
)
"""What the GPU does, and what is asked of it."""
WORST = PanelSpec("worst", worst, "height: 1fr; min-height: 5;", is_slow=True)
ROOMY = (
    PanelSpec("waiting", waiting, "height: 1fr; min-height: 5;", is_slow=True),
    PanelSpec("history", history, "height: 1fr; min-height: 5;", is_slow=True),
    PanelSpec("decision", decision, "height: 5;", is_slow=True),
)
"""The last minutes: where there is room."""
TENANTS_FILLED = 12

PANELS = (VERDICT, LATELY, WORST, *NOW, *ROOMY)


class OverviewScreen(ConsoleScreen):
    """Two columns where there is room for them."""

    NAME = "overview"
    HELP_TEXT = """\
The first lines say who misses which target, since when, the likely cause, and what waits. In time: the
share of the last 5 minutes that met its target (the worse of TTFT and TBT), requests that still wait and are
past their TTFT target counted as late. Late, oldest: how many those are, and how long the oldest waits. TBT:
99th percentile of the gaps of the last minute, against the tenant's own target. GPU: its share of all
SM time in the last whole minute. Last 30 min: two minutes a cell, red is
below what was promised. h has charts show 5 min, 30 min, 24 h; below them ▲ is a change, E the engine,
! an alarm. The bars are the GPU: orange (P) prefill, blue (D) decode, grey (·) idle, over the
last minute and now; in a split, │ is the boundary. Come, served, in time: requests per second of the last
minute."""
    DEFAULT_CSS = f"""
    {css_of("OverviewScreen", PANELS)}
    OverviewScreen #body {{ layout: vertical; }}
    OverviewScreen #parts {{ height: 1fr; }}
    OverviewScreen WorstTenants {{ height: 1fr; min-height: 4; }}
    OverviewScreen #who {{ height: 1fr; }}
    OverviewScreen #now {{ height: auto; }}
    OverviewScreen .roomy {{ display: none; }}
    OverviewScreen.-tall #verdict {{ height: 5; }}
    OverviewScreen.-tall #lately {{ height: 5; }}
    OverviewScreen.-tall #waiting {{ display: block; height: 7; }}
    OverviewScreen.-tall #history {{ display: block; height: 7; }}
    OverviewScreen.-wide #verdict {{ height: 4; }}
    OverviewScreen.-wide #parts {{ layout: horizontal; }}
    OverviewScreen.-wide #who {{ width: 3fr; margin-right: 2; }}
    OverviewScreen.-wide #now {{ width: 2fr; height: 1fr; }}
    OverviewScreen.-wide #lately {{ height: 1fr; max-height: 16; }}
    OverviewScreen.-wide.-tall .roomy {{ display: block; }}
    OverviewScreen.-wide.-tall #worst {{ max-height: 14; }}
    OverviewScreen.-wide.-tall #gpu {{ height: 5; }}
    OverviewScreen.-wide.-tall #waiting {{ height: 1fr; max-height: 14; }}
    OverviewScreen.-wide.-tall #history {{ height: 1fr; max-height: 16; }}
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("s", "sort", "Sort", show=False)]

    def __init__(self) -> None:
        super().__init__()
        self._past = Past(self)

    def body(self) -> Iterable[Widget]:
        """The verdict; for whom; what the GPU does."""
        yield VERDICT.panel()
        with Vertical(id="parts"):
            with Vertical(id="who"):
                yield WorstTenants(opened=self._open)
                yield WORST.panel(classes="roomy")
                yield LATELY.panel()
            with Vertical(id="now"):
                yield from (each.panel() for each in NOW)
                yield from (each.panel(classes="roomy") for each in ROOMY)

    async def fetch(self) -> None:
        """Ask for tenants' targets and for tenants without traffic; now and then for the past."""
        self.console.answers.tenants = await self.rest.ask(
            self.rest.api.list_tenants(), tuple[TenantOut, ...]
        )
        await self._past.fetch([row.name for row in tenant_rows(self.console)[:TENANTS_FILLED]])

    def action_sort(self) -> None:
        """Sort by the next column; after the last one, worst first again."""
        self.query_one(WorstTenants).action_sort()

    def _open(self, tenant: TenantRow) -> None:
        # Not before it is needed: the first paint is not to wait for it.
        from pdmuxd.tui.tenants.tenant import TenantScreen

        self.app.push_screen(TenantScreen(tenant.name))
