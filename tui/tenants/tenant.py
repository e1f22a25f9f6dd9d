"""One tenant, opened from the table."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import AttainmentOut, EffectsOut, RequestEvent, RequestsOut, SloOut, TenantOut
from pdmuxd.tui.shell.panel import Panel
from pdmuxd.tui.shell.past import Past
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.shell.timeline import Timeline
from pdmuxd.tui.show.overview.worst import chart_of
from pdmuxd.tui.show.tenants.causes import causes
from pdmuxd.tui.show.tenants.effect import effect, recent_effect
from pdmuxd.tui.show.tenants.tenant import facts, has_cost, history
from pdmuxd.tui.tenants.edit import EditSlo
from pdmuxd.tui.tenants.missed import MissedRequests

MISSED_LIMIT = 200
HISTORY_LIMIT = 20
CHANGED = "-changed"
"""A change is recent, so what it did is shown."""
EARLY = "-early"
"""It says only that nothing is compared."""
LIMITED = "-limited"
"""What its TBT target may cost is limited, which takes a line."""


class TenantScreen(ConsoleScreen):
    """Escape goes back to the table."""

    NAME = "tenants"
    HELP_TEXT = """\
One tenant: its targets with their version and whether the engine works with them yet, how they were met over
a minute, five minutes and an hour, what the last change did (the minute before against the time since), every
edit, and the requests that missed a target with the cause that the daemon found. Enter on a request shows its
timeline. e edits the targets: what the live predictors say of the new TBT target is shown before anything is
applied."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("e", "edit", "Edit targets"),
        Binding("escape", "back", "Back"),
    ]

    DEFAULT_CSS = """
    TenantScreen #facts { height: 9; }
    TenantScreen.-limited #facts { height: 10; }
    TenantScreen #causes { height: 5; }
    TenantScreen #slo-history { height: 4; }
    TenantScreen #effect { display: none; }
    TenantScreen #met { display: none; }
    TenantScreen.-tall #causes { height: 7; }
    TenantScreen.-tall #met { display: block; height: 8; }
    TenantScreen.-tall #slo-history { height: 5; }
    TenantScreen.-changed #causes { height: 4; }
    TenantScreen.-changed #effect { display: block; height: 5; }
    TenantScreen.-changed.-short #slo-history { display: none; }
    TenantScreen.-changed.-early #effect { height: 2; }
    TenantScreen.-changed.-early.-short #slo-history { display: block; height: 3; }
    TenantScreen.-changed.-tall #causes { height: 5; }
    TenantScreen.-changed.-tall #effect { height: 8; }
    TenantScreen.-changed.-early.-tall #effect { height: 2; }
    TenantScreen.-changed.-tall #slo-history { height: 4; }
    """

    def __init__(self, tenant: str) -> None:
        super().__init__()
        self._tenant = tenant
        self._past = Past(self)

    def body(self) -> Iterable[Widget]:
        """Facts, edits, misses."""
        yield Panel(partial(facts, self._tenant), name="facts")
        yield Panel(partial(causes, self._tenant), name="causes", is_slow=True)
        yield Panel(partial(chart_of, self._tenant), name="met", is_slow=True)
        yield Panel(partial(effect, self._tenant), name="effect")
        yield Panel(partial(history, self._tenant), name="slo-history")
        yield MissedRequests(self._tenant, opened=self._open)

    async def fetch(self) -> None:
        answers, rest, name = self.console.answers, self.rest, self._tenant
        answers.tenants, answers.attainment, missed, history, effects = await asyncio.gather(
            rest.ask(rest.api.list_tenants(), tuple[TenantOut, ...]),
            rest.ask(rest.api.get_attainment(tenant=name), AttainmentOut),
            rest.ask(rest.api.list_requests(tenant=name, missed=True, limit=MISSED_LIMIT), RequestsOut),
            rest.ask(rest.api.list_slo_history(name, limit=HISTORY_LIMIT), tuple[SloOut, ...]),
            rest.ask(rest.api.list_effects(tenant=name, limit=1), EffectsOut),
        )
        answers.missed, answers.slo_history, answers.effects = (
            {name: missed},
            {name: history},
            {name: effects},
        )
        last = recent_effect(name, self.view)
        self.set_class(last is not None, CHANGED)
        self.set_class(last is not None and last.after is None, EARLY)
        self.set_class(has_cost(name, self.view), LIMITED)
        if not isinstance(missed, Refusal):
            self.console.pasts.add_known(name, missed.requests)
        await self._past.fetch([name])

    def action_back(self) -> None:
        """All panels again if one is zoomed, else close."""
        if self.maximized is not None:
            self.minimize()
        else:
            self.app.pop_screen()

    def action_edit(self) -> None:
        """Edit the targets as they are now, not as they were when last asked for."""
        if self.why_no_change() is None:
            self.work(self._edit)

    async def _edit(self) -> None:
        current = await self.rest.ask(self.rest.api.get_slo(self._tenant), SloOut)
        if isinstance(current, Refusal):
            # What was typed behind it was for the field that does not open.
            self.forget_typed()
            self.notify(current.detail, title="The targets could not be read", severity="error", markup=False)
            return
        self.app.push_screen(EditSlo(self._tenant, current, self.rest), self._edited)

    def _edited(self, slo: SloOut | None) -> None:
        if slo is not None:
            self.notify(f"version {slo.version} of {self._tenant}'s targets is set", markup=False)
            self.poll()

    def _open(self, lifecycle: RequestEvent) -> None:
        self.app.push_screen(Timeline(lifecycle, self.zone))
