"""The console, /metrics and REST say the same of the same instant: one telemetry, read three ways."""

from __future__ import annotations

import re

import pytest
import scenes
from console_daemon import ConsoleDaemon
from scrapes import value
from stores import AdminCalls, new_database, opened
from telemetry_feeds import HandClock, request_record, telemetry

from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import collectors

LATE, WAITING = "pdmuxd_gateway_late_requests", "pdmuxd_gateway_waiting_requests"
OLDEST = "pdmuxd_gateway_oldest_wait_seconds"
BODY_BYTES = 4000
FLOOD, STARVING = 12, 7


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def known(clock):
    """`batch` is served; of `chat` the few that ended were in time, and those that wait are late."""
    fed = telemetry(clock, chat=0.04, batch=0.2)
    for number in range(FLOOD):
        fed.on_request(request_record(request_id=f"b{number}", tenant="batch"))
    fed.on_request(request_record(request_id="c"))
    for number in range(STARVING):
        name = f"w{number}"
        fed.on_begin(name, tenant="chat", path="/v1/completions")
        fed.on_read(name, is_streamed=True, body_bytes=BODY_BYTES, read_s=0.0)
        fed.on_sent(name)
        clock.turn(0.5)
    # Past the 1.3 s that their targets allow: all but the last two.
    return fed


def metrics_of(fed):
    made = Metrics()
    made.use_tenants(fed.directory.tenants)
    for collector in collectors(fed, made.tenants, node_limit=1024):
        made.registry.register(collector)
    return made


@pytest.fixture
def told(known, clock):
    """A console's daemon that sends what the real one would at this instant."""
    daemon = ConsoleDaemon()
    daemon.hello = known.hello("admin").model_dump(mode="json") | {"engine": scenes.engine()}
    daemon.send("stats", known.stats_event(clock()).model_dump(mode="json"))
    daemon.send("tenants", known.tenants_event(clock()).model_dump(mode="json"))
    return daemon


async def test_console_metrics_and_rest_agree_when_one_tenant_starves(console, told, known, clock, tmp_path):
    with opened(new_database(tmp_path)) as control_plane:
        call = AdminCalls(control_plane, telemetry=known)
        listed = (await call("GET", "/api/v1/attainment")).json()["tenants"]
        alarms = (await call("GET", "/api/v1/alarms")).json()["active"]
    rest = {one["tenant"]: one for one in listed}
    metrics = metrics_of(known)
    async with console(told, size=(120, 40)) as terminal:
        state = terminal.app.state
        loads = {one.tenant: one for one in state.tenants.tenants}
        for name, load in loads.items():
            answered = rest[name]
            assert load.verdict == answered["verdict"]
            assert load.late_now == answered["late_now"] == value(metrics, LATE, tenant=name)
            assert load.waiting == answered["waiting"] == value(metrics, WAITING, tenant=name)
            oldest_s = value(metrics, OLDEST, tenant=name) if answered["waiting"] else 0.0
            assert load.oldest_wait_ms == answered["oldest_wait_ms"] == pytest.approx(1000 * oldest_s)
        assert len(state.alarms) == len(alarms)

        # And the screen shows no other figure, verdict or colour than that.
        rows = {line[2:].split()[0]: line for line in terminal.text.splitlines() if line[:2] in ("! ", "+ ")}
        for name, line in rows.items():
            if name not in rest:
                continue
            answered = rest[name]
            assert (line[0] == "!") == (answered["verdict"] == "missed")
            (five_minutes,) = (one for one in answered["ttft"] if one["window_ms"] == 300_000)
            worst = min(five_minutes["attainment_ratio"], answered["tbt"][1]["attainment_ratio"])
            assert re.search(rf" {100 * worst:.1f}% ", line), (line, worst)
            shown_late = str(answered["late_now"]) if answered["late_now"] else "-"
            assert re.search(rf"% +{shown_late} ", line), line
        first = next(line for line in rows.values() if line[2:].startswith("chat"))
        assert first.startswith("!")
        assert f"{rest['chat']['late_now']} of {rest['chat']['waiting']} waiting late" in terminal.words
        assert terminal.text.splitlines()[1].count("chat misses TTFT") == 1
