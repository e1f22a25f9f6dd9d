"""The Partitions screen."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from textual import on
from textual.widget import Widget

from pdmuxd.tui.client.wire import PartitionsOut, WhatIfOut
from pdmuxd.tui.partitions.target import Target
from pdmuxd.tui.shell.panel import PanelSpec, css_of
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.show.partitions.groups import groups

GROUPS = PanelSpec("groups", groups, "height: 12;")

SETTLE_S = 0.15
"""The daemon is asked when the slider has stood still for so long, seconds."""


class PartitionsScreen(ConsoleScreen):
    """The keys go to the slider."""

    NAME = "partitions"
    POLL_S = 1.0
    HELP_TEXT = """\
Groups: the pairs of partitions that the device gave; ▶ is in force. Time, decisions and tokens in each since
the engine's start. Fused: one batch on all SMs. The slider asks the live predictors what the split would be
for another TBT target at the load of the last minutes. A worst case is the predicted solo step times the
contention guard; + meets the target, ! does not, ▶ would be chosen. To set a target: Tenants (2)."""

    DEFAULT_CSS = css_of("PartitionsScreen", [GROUPS])

    def body(self) -> Iterable[Widget]:
        """The groups in force, and what another target would give."""
        yield GROUPS.panel()
        yield Target()

    def on_screen_resume(self) -> None:
        """The slider begins at the target in force, before a key can move it."""
        if self._in_force_ms is not None:
            for target in self.query(Target):
                target.begin(self._in_force_ms)

    @property
    def _in_force_ms(self) -> float | None:
        stats = self.console.stats
        return stats.strictest_tbt.tbt_ms if stats and stats.strictest_tbt else None

    async def fetch(self) -> None:
        """Ask for the groups, and again for the slider's target, since the load has changed."""
        targets = self.query(Target)
        if not targets:
            return  # not there yet, or no more
        target = targets.first()
        target.begin(self._in_force_ms)
        answers, tbt_ms = self.console.answers, target.tbt_ms
        answers.partitions = await self.rest.ask(self.rest.api.get_partitions(), PartitionsOut)
        if tbt_ms is not None:
            answers.what_if = await self.rest.ask(self.rest.api.ask_what_if({"tbt_ms": tbt_ms}), WhatIfOut)

    @on(Target.Moved)
    def _ask(self, event: Target.Moved) -> None:
        self.begin(partial(self._predict, event.tbt_ms), group="what-if", exclusive=True)

    async def _predict(self, tbt_ms: float) -> None:
        await asyncio.sleep(SETTLE_S)
        answer = await self.rest.ask(self.rest.api.ask_what_if({"tbt_ms": tbt_ms}), WhatIfOut)
        self.console.answers.what_if = answer
        self.console.revision += 1
