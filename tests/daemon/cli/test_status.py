"""`pdmuxd status`: what is shown, and what the exit code says."""

from __future__ import annotations

import pytest
from admin_daemon import AdminDaemon
from stores import slo
from telemetry_feeds import HELLO, heartbeat, request_record

from pdmuxd.controlplane.history.incidents import IncidentStore
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.daemon.cli.status import duties_text
from pdmuxd.engine.core.errors import StoreError


@pytest.fixture
def serving(control_plane: ControlPlane, daemon: AdminDaemon) -> AdminDaemon:
    """With a tenant that missed one TTFT of two, and an engine at work."""
    control_plane.create_tenant("chat", slo(0.04))
    control_plane.refresh()
    daemon.telemetry.on_directory(control_plane.directory)
    daemon.telemetry.on_request(request_record())
    daemon.telemetry.on_request(request_record(request_id="r2", ttft_s=2.0))
    daemon.in_flight = {"chat": 3}
    stats = heartbeat(waiting=2, prefilling=1, running=4, prefill_sms=96, decode_sms=36)
    daemon.script = [{"pid": 41, "hello": HELLO, "stats": stats}]
    return daemon


def test_engine_targets_and_what_waits_are_shown_when_it_serves(pdmuxd, serving: AdminDaemon) -> None:
    shown = " ".join(pdmuxd("status").out.split())
    assert "engine serving since" in shown
    assert "process 41" in shown
    assert "llama-8b on H200 (emulator)" in shown
    assert "auto: now 96 prefill SMs, 36 decode" in shown
    assert "3 at the gateway; in the engine 2 waiting, 1 in prefill, 4 in decode" in shown
    assert "chat 3 0 95% 1 of 2 (50%) 20 of 20 (100%) 2 of 2 (100%)" in shown
    assert "no alarm is raised" in shown


def test_an_incident_is_told_with_its_cause_and_what_would_help(pdmuxd, serving: AdminDaemon) -> None:
    known = serving.telemetry
    for number in range(4):
        known.on_refused("chat", "requests_per_min", request_id=f"q{number}", path="/", status=429)
    known.watch(known.clock())
    shown = " ".join(pdmuxd("status").out.split())
    assert "INCIDENT chat misses availability and TTFT since " in shown
    assert "likely cause: refused by its own limits (4 of 5 misses)" in shown
    assert "what would help: pdmuxd limit show chat" in shown


def test_the_rest_is_told_when_the_database_cannot_be_read(
    pdmuxd, serving: AdminDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise StoreError("the database was removed while it is in use")

    monkeypatch.setattr(IncidentStore, "list", refuse)
    shown = " ".join(pdmuxd("status").out.split())
    assert "engine serving since" in shown
    assert "incidents cannot be read: the database was removed while it is in use" in shown
    found = pdmuxd("status", "--json").json
    assert found["incidents"] is None
    assert found["incidents_unknown"] == "the database was removed while it is in use"


def test_programs_get_what_rest_answers_when_they_ask_for_json(pdmuxd, serving: AdminDaemon) -> None:
    found = pdmuxd("status", "--json").json
    assert found["running"] is True
    assert found["admin"] == f"http://127.0.0.1:{serving.port}"
    assert found["engine"]["stats"]["waiting"] == 2
    assert [tenant["tenant"] for tenant in found["tenants"]] == ["chat"]
    assert found["alarms"] == []


def test_the_exit_code_is_one_when_the_engine_does_not_serve(pdmuxd, daemon: AdminDaemon) -> None:
    daemon.script = [{"state": "down", "last_error": "the model cannot be loaded"}]
    assert "the model cannot be loaded" in " ".join(pdmuxd("status", code=1).out.split())
    daemon.script = [{"state": "draining", "is_held": True}]
    assert "`pdmuxd engine resume` ends it" in " ".join(pdmuxd("status", code=1).out.split())


def test_a_raised_alarm_is_shown_with_its_text(
    pdmuxd, daemon: AdminDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(daemon.telemetry, "status", daemon.engine_status)
    daemon.telemetry.on_state("serving", None)
    daemon.script = [{"state": "down", "last_error": "killed"}]
    daemon.telemetry.watch(now_s=daemon.telemetry.clock())
    assert "ALARM engine_down (critical): " in pdmuxd("status", code=1).out


def test_it_is_said_that_none_runs_when_no_daemon_does(pdmuxd, control_plane: ControlPlane) -> None:
    shown = pdmuxd("status", code=1)
    assert "no daemon runs on the state directory" in shown.out
    assert pdmuxd("status", "--json", code=1).json == {"running": False, "state_dir": str(pdmuxd.state)}


def test_a_duty_that_fails_is_named_with_why(pdmuxd, serving: AdminDaemon) -> None:
    assert "duties 0, all of them go well" in " ".join(pdmuxd("status").out.split())
    duties = [{"name": "storing token use", "failed": "OSError: full"}, {"name": "watching", "failed": None}]
    assert duties_text(duties) == "storing token use fails (OSError: full)"
    assert duties_text(duties[1:]) == "1, all of them go well"
