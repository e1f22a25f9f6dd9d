"""`pdmuxd engine`: the actions, and what is shown until they are done."""

from __future__ import annotations

from typing import Any

import pytest
from admin_daemon import AdminDaemon
from stores import slo

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.cli import engine as commands

HELD = {"state": "draining", "is_held": True, "pid": 41}


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commands, "POLL_S", 0.0)


@pytest.fixture
def chat(control_plane: ControlPlane, daemon: AdminDaemon) -> AdminDaemon:
    control_plane.create_tenant("chat", slo(0.04))
    control_plane.refresh()
    daemon.telemetry.on_directory(control_plane.directory)
    return daemon


@pytest.mark.parametrize("action", ["start", "drain", "resume"])
def test_an_action_is_passed_on_when_a_daemon_runs(pdmuxd, daemon: AdminDaemon, action: str) -> None:
    assert pdmuxd("engine", action, "--json").json["action"] == action
    assert daemon.calls == [action]


def test_one_line_says_so_when_no_daemon_runs(pdmuxd, control_plane: ControlPlane) -> None:
    for action in ("start", "drain", "resume", "restart"):
        shown = pdmuxd("engine", action, code=1)
        assert shown.err.startswith("error: no daemon runs on the state directory")
        assert len(shown.err.splitlines()) == 1


def test_live_counts_are_shown_until_nothing_is_in_flight(
    pdmuxd, chat: AdminDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.script = [HELD]
    counts = iter([2, 2, 1, 0])
    monkeypatch.setattr(chat.telemetry, "in_flight", lambda: {"chat": next(counts)})
    assert pdmuxd("engine", "drain", "--wait").out.splitlines() == [
        "new requests are refused; 2 in flight finish",
        "draining: 2 at the gateway",
        "draining: 1 at the gateway",
        "drained: nothing is in flight",
    ]


@pytest.mark.parametrize(
    ("engine", "said"),
    [
        ({"state": "serving"}, "the drain was ended before it was done: the engine is serving"),
        (
            {"state": "down", "is_held": True, "last_error": "killed"},
            "the engine went down while it was drained: killed",
        ),
    ],
)
def test_a_drain_fails_when_it_ends_otherwise(
    pdmuxd, chat: AdminDaemon, engine: dict[str, Any], said: str
) -> None:
    chat.in_flight = {"chat": 1}
    chat.script = [HELD, engine]
    assert pdmuxd("engine", "drain", "--wait", code=1).err == f"error: {said}\n"


def test_each_step_is_shown_when_it_restarts(pdmuxd, daemon: AdminDaemon) -> None:
    daemon.script = [
        {"pid": 41},
        HELD,
        {"state": "down"},
        {"state": "starting", "pid": 42},
        {"state": "starting", "pid": 42},
        {"pid": 42},
    ]
    assert pdmuxd("engine", "restart").out.splitlines() == [
        "ended when drained",
        "ending: 0 at the gateway",
        "down",
        "starting: process 42",
        "serving: process 42",
    ]


def test_the_state_that_was_reached_is_the_answer_when_asked_for_json(pdmuxd, daemon: AdminDaemon) -> None:
    daemon.script = [{"pid": 41}, {"state": "down"}, {"pid": 42}]
    shown = pdmuxd("engine", "restart", "--at-once", "--json").json
    assert (shown["text"], shown["state"]) == ("ended at once", "serving")
    assert pdmuxd("engine", "restart", "--no-wait", "--json").json["state"] == "draining"


def test_a_restart_fails_when_no_engine_comes_up(pdmuxd, daemon: AdminDaemon) -> None:
    daemon.script = [
        {"pid": 41},
        {"state": "starting", "pid": 42},
        {"state": "down", "last_error": "no memory"},
    ]
    err = pdmuxd("engine", "restart", code=1).err
    assert err == "error: the engine did not come up and is tried again: no memory\n"


def test_what_is_held_is_shown_with_its_requests_and_released(pdmuxd, chat: AdminDaemon) -> None:
    shown = pdmuxd("engine", "quarantine").out
    assert "chat" in shown
    assert "body 9f2c11aa" in shown
    assert "r1 r2" in shown
    assert "RuntimeError: two" in shown
    assert "released: 0" in pdmuxd("engine", "quarantine", "--release", "other").out
    assert "released: 1" in pdmuxd("engine", "quarantine", "--release", "chat").out
    assert "nothing is held" in pdmuxd("engine", "quarantine").out
    assert pdmuxd("engine", "quarantine", "--json").json == []


def test_one_tenant_and_all_are_not_released_together(pdmuxd, chat: AdminDaemon) -> None:
    shown = pdmuxd("engine", "quarantine", "--release", "chat", "--release-all", code=2)
    assert "either --release TENANT or --release-all" in shown.err
    assert len(chat.quarantine.entries) == 1
