"""The console, /metrics and REST say the same of the same instant: one telemetry, read three ways."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace

import httpx
import pytest
import scenes
from console_daemon import ConsoleDaemon
from scrapes import samples, value
from stores import ADMIN_TOKEN, AdminCalls, new_database, opened
from telemetry_feeds import (
    HELLO,
    START_S,
    HandClock,
    directory,
    heartbeat,
    request_record,
    step,
    telemetry,
    tenants_event,
)

from pdmuxd.controlplane.events.outcomes import UNSERVED
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.metrics.collectors import collectors
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.tui.show.palette import DARK
from pdmuxd.tui.show.roles import Role

pytestmark = pytest.mark.slow

LATE, WAITING = "pdmuxd_gateway_late_requests", "pdmuxd_gateway_waiting_requests"
OLDEST = "pdmuxd_gateway_oldest_wait_seconds"
BODY_BYTES = 4000
BAD = DARK.paints[Role.BAD].foreground
FLOOD, STARVING = 12, 7


@pytest.fixture
def clock():
    return HandClock()


@pytest.fixture
def hearers():
    """Who is told how requests ended; the telemetry has begun by the time some of them are there."""
    return []


@pytest.fixture
def known(clock, hearers):
    """`batch` is served; of `chat` the few that ended were in time, and those that wait are late."""
    fed = telemetry(clock, on_outcome=lambda *told: [hear(*told) for hear in hearers], chat=0.04, batch=0.2)
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


def metrics_of(fed, made=None):
    made = made or Metrics()
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
    daemon.send("tenants", tenants_event(known).model_dump(mode="json"))
    return daemon


def foregrounds(terminal, row):
    """The colours of the text of a row."""
    strip = terminal.app.screen._compositor.render_strips()[row]
    return {one.style.color.name for one in strip if one.text.strip() and one.style and one.style.color}


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

        # The cursor, which has colours of its own, is not on the row that is looked at.
        await terminal.press("down")
        # And the screen shows no other figure, verdict or colour than that.
        rows = {line[2:].split()[0]: line for line in terminal.text.splitlines() if line[:2] in ("! ", "+ ")}
        for name, line in rows.items():
            if name not in rest:
                continue
            answered = rest[name]
            assert (line[0] == "!") == (answered["verdict"] == "missed")
            seen = foregrounds(terminal, terminal.text.splitlines().index(line))
            assert (BAD in seen) == (answered["verdict"] == "missed")
            (five_minutes,) = (one for one in answered["ttft"] if one["window_ms"] == 300_000)
            worst = min(five_minutes["attainment_ratio"], answered["tbt"][1]["attainment_ratio"])
            assert re.search(rf" {100 * worst:.1f}% ", line), (line, worst)
            shown_late = str(answered["late_now"]) if answered["late_now"] else "-"
            assert re.search(rf"% +{shown_late} ", line), line
        first = next(line for line in rows.values() if line[2:].startswith("chat"))
        assert first.startswith("!")
        assert f"{rest['chat']['late_now']} of {rest['chat']['waiting']} waiting late" in terminal.words
        assert terminal.text.splitlines()[1].count("chat misses TTFT") == 1


# Every other screen, against the real routes and /metrics of the same telemetry.

GUARDED = {"guard_ratio": 1.31, "measured_step_s": 0.030, "measured_decode_s": 0.030}


class RealRoutes(ConsoleDaemon):
    """Sends the events that it is given, and answers everything else by the admin application."""

    def __init__(self, call: AdminCalls) -> None:
        super().__init__()
        self._admin = httpx.ASGITransport(call.app)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        if request.url.path == "/api/v1/events":
            return await super().handle_async_request(request)
        request.headers["Authorization"] = f"Bearer {ADMIN_TOKEN}"
        answer = await self._admin.handle_async_request(request)
        await answer.aread()
        return answer


@pytest.fixture
def whole(known, clock, hearers):
    """The same with decisions, a guard, refusals and a request that two targets were missed by."""
    beat = heartbeat(prefill_sms=96, decode_sms=36, partition_id=1, running=4, waiting=2, uptime_s=60.0)
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO, stats=beat)
    known.in_flight = lambda: {"chat": STARVING, "batch": 2}
    metrics = metrics_of(known)
    hearers.append(metrics.request_over)
    known.on_message(HELLO)
    for number in range(40):
        record = step(step=number, now_s=clock() - START_S + number / 100, **GUARDED)
        known.on_message(record)
        metrics.decision(record)
    known.on_message(beat)
    metrics.engine_stats(beat)
    for number in range(3):
        about = {"request_id": f"refused{number}", "path": "/v1/completions", "status": 429}
        known.on_refused("batch", "too_many_requests", **about)
        metrics.request_refused("batch", "too_many_requests")
    known.on_request(
        request_record(request_id="late", queue_s=1.5, ttft_s=1.6, tbt_max_s=0.07, tbt_gaps_met=7)
    )
    return known, metrics


@contextlib.contextmanager
def routed(known, clock, tmp_path):
    """A console's daemon with the real routes; all three ways of asking it."""
    with opened(new_database(tmp_path)) as control_plane:
        for name, tbt_ms in (("chat", 40.0), ("batch", 200.0)):
            target = replace(DEFAULT_SLO, tbt_s=tbt_ms / 1000)
            control_plane.create_tenant(name, target)
        call = AdminCalls(control_plane, telemetry=known)
        call.status = known.status()
        daemon = RealRoutes(call)
        daemon.hello = known.hello("admin").model_dump(mode="json") | {"engine": scenes.engine()}
        daemon.send("stats", known.stats_event(clock()).model_dump(mode="json"))
        daemon.send("tenants", tenants_event(known).model_dump(mode="json"))
        yield daemon, call


async def asked(call, path):
    answer = await call("GET", f"/api/v1{path}")
    assert answer.is_success, answer.text
    return answer.json()


def row_of(text, name):
    return next(line for line in text.splitlines()[2:] if line.split()[:1] == [name])


async def test_no_screen_contradicts_metrics_or_rest(console, whole, clock, tmp_path):
    known, metrics = whole
    told = samples(metrics)
    with routed(known, clock, tmp_path) as (daemon, call):
        attained = {one["tenant"]: one for one in (await asked(call, "/attainment"))["tenants"]}
        async with console(daemon, size=(120, 40)) as terminal:

            async def opened_screen(*keys):
                await terminal.press(*keys)
                await terminal.answered()
                # The status line says the same on each.
                chat = attained["chat"]
                assert "chat misses TTFT and TBT since" in terminal.text.splitlines()[1]
                assert f"{chat['late_now']} late" in terminal.text.splitlines()[1]
                return terminal.text

            text = await opened_screen("2")
            for name in ("chat", "batch"):
                cells, rest = row_of(text, name).split(), attained[name]
                assert cells[-1] == str(rest["availability"][1]["unserved"])
                assert int(cells[-1]) == sum(
                    count
                    for (metric, labels), count in told.items()
                    if metric == "pdmuxd_outcomes_total"
                    and dict(labels)["tenant"] == name
                    and dict(labels)["outcome"] in UNSERVED
                )
                assert int(cells[-2]) == rest["waiting"] == told[WAITING, (("tenant", name),)]
                hour = [
                    one for kind in ("ttft", "tbt") for one in rest[kind] if one["window_ms"] == 3_600_000
                ]
                known_ratios = [one["attainment_ratio"] for one in hour]
                known_ratios += [
                    one["availability_ratio"] for one in rest["availability"] if one["window_ms"] == 3_600_000
                ]
                met = min(ratio for ratio in known_ratios if ratio is not None)
                assert cells[1] == f"{100 * met:.1f}%"

            text = await opened_screen("enter")
            assert "Tenant chat" in text
            for window, shown in ((60_000, "60 s"), (300_000, "5 min"), (3_600_000, "60 min")):
                line = next(each for each in text.splitlines() if each.startswith(f"{shown} "))
                first, gaps = (
                    next(one for one in attained["chat"][kind] if one["window_ms"] == window)
                    for kind in ("ttft", "tbt")
                )
                met, late, _, gaps_met, gaps_late, _ = line.removeprefix(shown).split()
                assert (met, late) == (f"{100 * first['attainment_ratio']:.1f}%", str(first["missed"]))
                assert (gaps_met, gaps_late) == (
                    f"{100 * gaps['attainment_ratio']:.1f}%",
                    str(gaps["missed"]),
                )
            (missed,) = (await asked(call, "/requests?tenant=chat&missed=true"))["requests"]
            for miss in missed["missed"]:
                assert miss["text"][:20] in text
            await terminal.press("escape")

            text = await opened_screen("3")
            used = await asked(call, "/partitions")
            for group in used["groups"]:
                cells = row_of(text.replace("▶", " "), str(group["partition_id"])).split()
                assert cells[1:3] == [str(group["prefill_sms"]), str(group["decode_sms"])]
                assert cells[4] == str(group["decisions"])

            text = await opened_screen("4")
            guard = await asked(call, "/guard")
            highest = max(cell["ratio"] for cell in guard["cells"])
            assert f"{highest:.2f}" in text
            assert highest == pytest.approx(told["pdmuxd_guard_max_ratio", ()])

            text = await opened_screen("5")
            seen = (await asked(call, "/decisions?limit=1"))["total_seen"]
            assert f"{seen} since the daemon began" in text
            assert seen == sum(
                count for (metric, _), count in told.items() if metric == "pdmuxd_decisions_total"
            )

            text = await opened_screen("6")
            held = sum(one["in_flight"] for one in attained.values())
            assert f"{held} at the gateway; in the engine 2 waiting" in text
            assert told["pdmuxd_engine_waiting", ()] == 2


async def test_what_an_edit_did_is_what_metrics_counted_since(console, clock, tmp_path):
    metrics = Metrics()
    fed = telemetry(
        clock, on_settled=metrics.request_judged, on_outcome=metrics.request_over, chat=0.04, batch=0.2
    )
    metrics_of(fed, metrics)
    fed.on_message(HELLO)

    def serve(prefix, count, late):
        for number in range(count):
            ttft_s = 3.0 if number < late else 0.3
            for tenant in ("chat", "batch"):
                name = f"{prefix}{tenant}{number}"
                fed.on_request(request_record(request_id=name, tenant=tenant, ttft_s=ttft_s))
        fed.on_message(step(now_s=clock()))

    clock.turn(61.0)
    serve("a", 40, 10)
    fed.on_directory(directory(2, chat=0.03, batch=0.2))
    told = samples(metrics)
    serve("b", 50, 5)
    clock.turn(61.0)
    since = samples(metrics)
    with routed(fed, clock, tmp_path) as (daemon, call):
        (effect,) = (await asked(call, "/effects?tenant=chat"))["effects"]
        async with console(daemon, size=(120, 40)) as terminal:
            await terminal.press("colon", *"chat", "enter")
            await terminal.until_shown("What it did: TBT 40 to 30 ms")
            text = terminal.text
    for name in ("chat", "batch"):
        met, judged = (
            since[metric, (("tenant", name),)] - told[metric, (("tenant", name),)]
            for metric in ("pdmuxd_delivered_ttft_met_total", "pdmuxd_delivered_ttft_requests_total")
        )
        (rest,) = (one for one in effect["after"]["tenants"] if one["tenant"] == name)
        assert (rest["requests"], rest["ttft_attainment_ratio"]) == (judged, met / judged)
        (before,) = (one for one in effect["before"]["tenants"] if one["tenant"] == name)
        assert f"{100 * before['ttft_attainment_ratio']:.1f}% → {100 * met / judged:.1f}%" in row_of(
            text, name
        )
        assert f"→ {rest['ttft_p99_ms']:.0f} " in row_of(text, name)
