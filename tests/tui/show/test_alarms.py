"""The list of alarms has their whole texts, and what is held with the command that releases it."""

from __future__ import annotations

import msgspec
import scenes

from pdmuxd.controlplane.node.quarantine import Held
from pdmuxd.daemon.duties.quarantine_record import QuarantineRecord
from pdmuxd.tui.client.wire import AlarmEvent
from pdmuxd.tui.show.alarms import alarm_lines
from pdmuxd.tui.state.console import ConsoleState
from pdmuxd.tui.state.view import View


class OneHeld:
    """A quarantine that holds a body of a tenant."""

    def held(self) -> list[Held]:
        return [Held(tenant="chat", body="9f2c", request_ids=("r1",), engine_errors=(), left_s=60.0)]


def test_what_is_held_is_shown_with_the_command_that_releases_it() -> None:
    (condition,) = QuarantineRecord(OneHeld(), None).conditions()  # type: ignore[arg-type]
    state = ConsoleState()
    raised = scenes.alarm(id=condition.id, kind=condition.kind, text=condition.text)
    state.alarms = {condition.id: msgspec.convert(raised, AlarmEvent, strict=False)}
    lines = alarm_lines(None, View(state=state, now_s=1000.0, url="http://127.0.0.1:8081"), 72)
    shown = " ".join("".join(text for text, _ in line) for line in lines)
    assert "pdmuxd engine quarantine --release chat" in " ".join(shown.split())
