"""The Overview."""

from __future__ import annotations

from collections.abc import Iterable

from textual.containers import Vertical
from textual.widget import Widget

from pdmuxd.tui.overview.alarms import Alarms
from pdmuxd.tui.overview.decision import Decision
from pdmuxd.tui.overview.engine import EngineFacts
from pdmuxd.tui.overview.gpu import Gpu
from pdmuxd.tui.overview.hidden import Hidden
from pdmuxd.tui.overview.history import History
from pdmuxd.tui.overview.latency import Latency
from pdmuxd.tui.overview.load import Load
from pdmuxd.tui.overview.log import LastDecisions
from pdmuxd.tui.overview.tenants import BusiestTenants
from pdmuxd.tui.shell.screen import ConsoleScreen


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
    DEFAULT_CSS = """
    OverviewScreen #body { layout: vertical; }
    OverviewScreen #now, OverviewScreen #who { height: auto; }
    OverviewScreen.-narrow.-short #now { height: 1fr; }
    OverviewScreen.-narrow.-short .roomy { display: none; }
    OverviewScreen.-narrow.-short Hidden { display: block; }
    OverviewScreen.-narrow.-tall #who { height: 1fr; }
    OverviewScreen.-narrow.-tall #now { height: auto; }
    OverviewScreen.-narrow.-tall History { height: 6; }
    OverviewScreen.-narrow.-tall BusiestTenants { min-height: 3; }
    OverviewScreen.-wide #body { layout: horizontal; }
    OverviewScreen.-wide #now { width: 1fr; height: 1fr; margin-right: 2; }
    OverviewScreen.-wide #who { width: 1fr; height: 1fr; }
    OverviewScreen.-wide.-tall Gpu { height: 5; }
    OverviewScreen.-wide.-tall Alarms { height: 6; }
    OverviewScreen.-wide.-tall History { max-height: 30; }
    """

    def body(self) -> Iterable[Widget]:
        """What the GPU does, and for whom."""
        with Vertical(id="now"):
            yield Gpu()
            yield History()
            yield Decision()
            yield Latency()
            yield Load()
        with Vertical(id="who"):
            yield Alarms()
            for painting in (EngineFacts(), BusiestTenants(), LastDecisions()):
                painting.add_class("roomy")
                yield painting
            yield Hidden()
