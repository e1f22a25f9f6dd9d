"""The Overview."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Vertical
from textual.widget import Widget

from pdmuxd.tui.shell.panel import PanelSpec, css_of
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.show.overview.alarms import alarms
from pdmuxd.tui.show.overview.decision import decision
from pdmuxd.tui.show.overview.engine import engine
from pdmuxd.tui.show.overview.gpu import gpu
from pdmuxd.tui.show.overview.hidden import hidden
from pdmuxd.tui.show.overview.history import history
from pdmuxd.tui.show.overview.latency import latency
from pdmuxd.tui.show.overview.load import load
from pdmuxd.tui.show.overview.log import log
from pdmuxd.tui.show.overview.tenants import tenants

NOW = (
    PanelSpec("gpu", gpu, "height: 3;"),
    PanelSpec("history", history, "height: 1fr; min-height: 3; max-height: 14;", is_slow=True),
    PanelSpec("decision", decision, "height: 3;"),
    PanelSpec("latency", latency, "height: 3;", is_slow=True),
    PanelSpec("load", load, "height: 4;"),
)
"""What the GPU does."""
ALARMS = PanelSpec("alarms", alarms, "height: 3;", is_slow=True)
ROOMY = (
    PanelSpec("engine", engine, "height: 7;", is_slow=True),
    PanelSpec("tenants", tenants, "height: 1fr; min-height: 4;", is_slow=True),
    PanelSpec("last-decisions", log, "height: 1fr; min-height: 4;", is_slow=True),
)
"""For whom, and what was decided: hidden on a small terminal."""
HIDDEN = PanelSpec("hidden", hidden, "height: 1; display: none;")
PANELS = (*NOW, ALARMS, *ROOMY, HIDDEN)


class OverviewScreen(ConsoleScreen):
    """Two columns where there is room for them."""

    NAME = "overview"
    HELP_TEXT = """\
The bar is the GPU: orange (P) is prefill, blue (D) decode, grey (·) idle. In a split, │ is the boundary
between the two partitions: each fills its own from its end. In a fused batch all SMs do both.
The strip below is the same over time. TTFT: time to first token. TBT: each gap between two tokens.
Its target is the strictest of the tenants with requests in flight, since decode is one batch. A TTFT target
depends on the prompt: shown are how many of the last 200 requests were in time, and ~ the median of their
targets. + within target (TTFT: 99% in time), ! not. Goodput: requests per second that met both targets."""
    DEFAULT_CSS = f"""
    {css_of("OverviewScreen", PANELS)}
    OverviewScreen #body {{ layout: vertical; }}
    OverviewScreen #now, OverviewScreen #who {{ height: auto; }}
    OverviewScreen.-narrow.-short #now {{ height: 1fr; }}
    OverviewScreen.-narrow.-short .roomy {{ display: none; }}
    OverviewScreen.-narrow.-short #hidden {{ display: block; }}
    OverviewScreen.-narrow.-tall #who {{ height: 1fr; }}
    OverviewScreen.-narrow.-tall #now {{ height: auto; }}
    OverviewScreen.-narrow.-tall #history {{ height: 6; }}
    OverviewScreen.-narrow.-tall #tenants {{ min-height: 3; }}
    OverviewScreen.-wide #body {{ layout: horizontal; }}
    OverviewScreen.-wide #now {{ width: 1fr; height: 1fr; margin-right: 2; }}
    OverviewScreen.-wide #who {{ width: 1fr; height: 1fr; }}
    OverviewScreen.-wide.-tall #gpu {{ height: 5; }}
    OverviewScreen.-wide.-tall #alarms {{ height: 6; }}
    OverviewScreen.-wide.-tall #history {{ max-height: 30; }}
    """

    def body(self) -> Iterable[Widget]:
        """What the GPU does, and for whom."""
        with Vertical(id="now"):
            yield from (each.panel() for each in NOW)
        with Vertical(id="who"):
            yield ALARMS.panel()
            yield from (each.panel(classes="roomy") for each in ROOMY)
            yield HIDDEN.panel()
