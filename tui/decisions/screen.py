"""The Decisions screen."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.widget import Widget

from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import DecisionsOut, RequestOut
from pdmuxd.tui.decisions.ask_request import AskRequest
from pdmuxd.tui.decisions.detail import DecisionDetail
from pdmuxd.tui.decisions.log import DecisionLog
from pdmuxd.tui.shell.filter_box import FilterBox
from pdmuxd.tui.shell.screen import ConsoleScreen
from pdmuxd.tui.shell.timeline import Timeline
from pdmuxd.tui.show.decision_filter import parse
from pdmuxd.tui.state.view import View

LIMIT = 500


class DecisionsScreen(ConsoleScreen):
    """The log, and below it one of its decisions in words."""

    NAME = "decisions"
    POLL_S = 1.0
    HELP_TEXT = """\
Every decision of the engine, newest first. × is how many alike one row stands for: the daemon folds those of
the same reason and split within 100 ms. Predicted, measured and slack are of a decode step in a split, of the
batch in fused steps; slack is target minus worst case. "12 out": so many of the decode batch sit the step
out, since their TBT targets let them wait. f goes through the reasons; / filters by a part of a reason
(sits_out: where some do) and by tenant: best_fit tenant:chat. i shows a request's timeline by its id. Space
holds the log."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "reason", "Next reason"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("i", "request", "Request by id"),
        Binding("space", "pause", "Hold"),
    ]

    def body(self) -> Iterable[Widget]:
        """Log, detail, filter."""
        yield DecisionLog()
        yield DecisionDetail()
        yield FilterBox(
            placeholder="part of a reason, tenant:NAME", wanted=self._filter, entered=lambda _: self.poll()
        )

    def paint(self, view: View) -> None:
        """Paint; the words are of the decision under the cursor."""
        super().paint(view)
        # A frame may come before the widgets are there, or while the console ends and they go.
        for log, detail in zip(self.query(DecisionLog), self.query(DecisionDetail), strict=False):
            if log.chosen is not detail.decision:
                detail.decision = log.chosen
                detail.repaint()

    async def fetch(self) -> None:
        """Ask once for decisions from before this console, and for those of a tenant while the log is
        filtered by it."""
        logs = self.query(DecisionLog)
        tenant = logs.first().wanted.tenant if logs else ""
        if not tenant and self.console.decisions_total is None:
            earlier = await self.rest.ask(self.rest.api.list_decisions(limit=LIMIT), DecisionsOut)
            if not isinstance(earlier, Refusal):
                self.console.add_earlier_decisions(earlier.decisions, earlier.total_seen)
        if tenant:
            answer = await self.rest.ask(
                self.rest.api.list_decisions(tenant=tenant, limit=LIMIT), DecisionsOut
            )
            self.console.answers.decisions = answer
            if isinstance(answer, Refusal):
                self.notify(answer.detail, title="No decisions of a tenant", severity="warning", markup=False)

    def action_reason(self) -> None:
        """Filter by the next reason that has been seen."""
        log = self.query_one(DecisionLog)
        log.wanted = log.wanted.with_next_reason(self.console.decisions)
        log.repaint()

    def action_filter(self) -> None:
        self.query_one(FilterBox).open()

    def action_pause(self) -> None:
        """Stop the log, or let it go on."""
        self.query_one(DecisionLog).pause(self.view)

    def action_request(self) -> None:
        self.app.push_screen(AskRequest(), self._asked)

    def _asked(self, request_id: str | None) -> None:
        if request_id:
            self.begin(partial(self._show, request_id), group="request", exclusive=True)

    async def _show(self, request_id: str) -> None:
        answer = await self.rest.ask(self.rest.api.get_request(request_id), RequestOut)
        if isinstance(answer, Refusal):
            self.notify(answer.detail, title="No such request", severity="warning", markup=False)
        else:
            self.app.push_screen(Timeline(answer, self.zone))

    def _filter(self, typed: str) -> None:
        log = self.query_one(DecisionLog)
        log.wanted = parse(typed)
        log.repaint()
