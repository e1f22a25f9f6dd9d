"""What an operator with a pager reads first: who misses which target, since when, and why."""

from __future__ import annotations

import pytest
import routes
import scenes

STARVING = {
    "in_flight": 173,
    "waiting": 173,
    "late_now": 168,
    "oldest_wait_ms": 60_200.0,
    "verdict": "missed",
    "ttft_burn": 97.0,
    "ttft_attainment_ratio": 0.4,
    "budget_left_ratio": -7.31,
}


@pytest.fixture
def overload(daemon):
    """One tenant floods, another starves; what ended looks healthy, since few of the late have ended."""
    routes.serve_all(daemon)
    loads = [
        scenes.tenant_load("batch", in_flight=240, waiting=60, verdict="met"),
        scenes.tenant_load("chat", **STARVING),
        scenes.tenant_load("search", in_flight=1),
    ]
    daemon.send("stats", scenes.stats(waiting_total=233, late_now=168, oldest_wait_ms=60_200.0))
    daemon.send("tenants", scenes.tenants() | {"tenants": loads})
    missed = [{"target": "ttft", "by_ms": 900.0, "cause": "queued", "text": "waited 59 s"}]
    for number in range(5):
        daemon.send("request", scenes.request_life(number, tenant="batch", new_tokens=9000, missed=[]))
        daemon.send("request", scenes.request_life(100 + number, new_tokens=500, missed=missed))
    alarm = {
        "id": "late_now:chat",
        "kind": "late_now",
        "tenant": "chat",
        "text": "chat: 168 requests are late",
    }
    daemon.send("alarm", scenes.alarm(**alarm))
    return daemon


async def test_the_first_screen_says_who_what_since_when_and_why_when_there_is_overload(console, overload):
    async with console(overload, size=(80, 24)) as terminal:
        await terminal.until_shown("TTFT of 500 ms")
        first = "\n".join(terminal.text.splitlines()[:7])
        words = " ".join(first.split())
        assert "! 1 alarm" in words
        assert "chat misses TTFT of 500 ms + 800 per 1K tokens since 11:58:00 (2 min)." in words
        assert "168 of 173 waiting late, oldest 60 s" in words
        assert "Likely cause: queued behind batch, with 95% of the prompt tokens of the last minute." in words
        # The one that starves is the first row, though another has more in flight.
        rows = [line for line in terminal.text.splitlines() if line.startswith(("! ", "+ "))]
        assert rows[1].startswith("! chat")


@pytest.mark.slow
@pytest.mark.parametrize("key", "23456")
async def test_every_screen_says_it_when_there_is_overload(console, overload, key):
    async with console(overload) as terminal:
        await terminal.press(key)
        assert "! 1 alarm" in terminal.text.splitlines()[1]
        assert "! chat misses TTFT since 11:58:00, 168 late" in terminal.text.splitlines()[1]


async def test_nothing_is_called_met_when_there_is_no_traffic(console, daemon):
    idle = {"verdict": "no_traffic", "ttft_burn": None, "tbt_burn": None, "in_flight": 0, "waiting": 0}
    daemon.send("stats", scenes.stats(waiting_total=0, late_now=0))
    daemon.send("tenants", scenes.tenants() | {"tenants": [scenes.tenant_load("chat", **idle)]})
    async with console(daemon) as terminal:
        assert "no traffic" in terminal.text.splitlines()[1]
        assert "100" not in terminal.text.split("Demand")[0].replace("100%  ", "")
        assert "+ " not in terminal.text.split("Demand")[0]


async def test_all_is_well_when_every_tenant_meets_its_own_targets(console, daemon):
    loads = [scenes.tenant_load("chat"), scenes.tenant_load("batch", ttft_burn=0.9)]
    daemon.send("stats", scenes.stats(waiting_total=2, late_now=0))
    daemon.send("tenants", scenes.tenants() | {"tenants": loads})
    async with console(daemon) as terminal:
        assert "+ all 2 tenants with traffic meet the targets" in terminal.text.splitlines()[1]
        assert "Closest to its limit: batch, 99.1% kept of 99.0% promised." in terminal.words


def incident(tenant, state, **changes):
    """One that began three minutes ago, and had its last miss a minute ago if it is over."""
    told = {
        "at": scenes.instant(),
        "incident_id": f"{tenant}-1",
        "tenant": tenant,
        "state": state,
        "began_at": scenes.instant(-180),
        "last_missed_at": scenes.instant(-60 if state == "over" else 0),
        "over_at": scenes.instant(-60) if state == "over" else None,
        "promised_ratio": 0.99,
        "targets": [
            {"target": "ttft", "judged": 90, "missed": 30, "worst_ratio": 0.5, "worst_by_ms": 4000.0}
            | {"worst_at": scenes.instant(-90)}
        ],
        "cause": "queued",
        "behind": "batch",
        "text": "queued behind batch: 95% of the prompt tokens",
        "command": "pdmuxd limit set batch concurrency=64:wait",
        "predicted": "chat: 91.0% to 99.0% of TTFT in time",
    }
    return told | changes


@pytest.mark.slow
async def test_the_daemons_incident_is_told_with_its_cause_and_what_would_help(console, overload):
    others = [incident(name, "open") for name in ("search", "mail", "code", "web")]
    loads, told = [scenes.tenant_load("chat", **STARVING)], [incident("chat", "open"), *others]
    overload.send("tenants", scenes.tenants() | {"tenants": loads, "incidents": told})
    async with console(overload, size=(120, 40)) as terminal:
        await terminal.until_shown("TTFT of 500 ms")
        words = terminal.words
        assert "since 11:57:00 (3 min); so do search, mail, code and 1 more." in words
        assert "30 of 90 requests missed TTFT, by up to 4 s, at worst 50.0% kept in half a minute" in words
        assert "Likely cause: queued behind batch: 95% of the prompt tokens." in words
        helps = "pdmuxd limit set batch concurrency=64:wait (predicted: chat: 91.0% to 99.0%"
        assert f"What would help: {helps}" in words


async def test_it_says_since_when_it_is_over_though_five_minutes_still_hold_the_misses(console, overload):
    overload.send("stats", scenes.stats(waiting_total=0, late_now=0))
    calm = scenes.tenant_load("chat", **(STARVING | {"late_now": 0, "waiting": 0}))
    overload.send("tenants", scenes.tenants() | {"tenants": [calm], "incidents": [incident("chat", "over")]})
    async with console(overload, size=(120, 40)) as terminal:
        await terminal.until_shown("chat: over since 11:59:00")
        assert "chat missed TTFT from 11:57:00 to 11:59:00, over for 60 s." in terminal.words
        assert "+ chat: over since" in terminal.text.splitlines()[1]


async def test_the_engine_comes_first_when_it_is_down(console, overload):
    async with console(overload) as terminal:
        overload.send("engine", scenes.engine(state="down", reason="exit code 1", pid=None))
        await terminal.until_shown("!! the engine is down since 11:00:00")


async def test_a_change_is_marked_when_it_comes(console, overload):
    async with console(overload, size=(80, 40)) as terminal:
        changed = [{"tenant": "chat", "slo_version": 4, "tbt_ms": 30.0}]
        overload.send(
            "settings", {"at": scenes.instant(), "kind": "wanted", "version": 18, "changed": changed}
        )
        overload.send("engine", scenes.engine(restarts=1))
        await terminal.until_shown("12:00:00 targets of chat: version 4, TBT 30 ms")
        await terminal.until_shown("12:00:00 engine restarted (1 in all)")


async def test_alarms_have_an_end_when_the_list_is_opened(console, overload):
    async with console(overload) as terminal:
        await terminal.press("exclamation_mark")
        await terminal.answered()
        assert "11:58:00 raised 2 min chat: 168 requests are late" in terminal.words
        assert "11:30:00 11:45:00 15 min chat: TBT misses" in terminal.words


async def test_the_tenants_screen_opens_when_its_name_is_jumped_to(console, overload):
    async with console(overload) as terminal:
        await terminal.press("colon", *"sear", "enter")
        await terminal.until_shown("Tenant search")


async def test_the_worst_tenant_opens_when_enter_is_pressed_on_the_first_screen(console, overload):
    async with console(overload) as terminal:
        await terminal.press("enter")
        await terminal.until_shown("Tenant chat")


async def test_rows_are_sorted_when_a_columns_key_or_heading_is_pressed(console, overload):
    def names(terminal):
        return [line[2:8].strip() for line in terminal.text.splitlines()[8:11]]

    async with console(overload) as terminal:
        await terminal.press("N")
        assert names(terminal) == ["batch", "chat", "quiet"]
        await terminal.press("N")
        assert names(terminal) == ["search", "quiet", "chat"]
        table = next(at for at, line in enumerate(terminal.text.splitlines()) if line.startswith("─ Tenants"))
        await terminal.pilot.click(offset=(37, table + 1))
        await terminal.settle()
        assert "▼late" in terminal.text
        assert names(terminal)[0] == "chat"


async def test_the_table_is_written_when_csv_is_asked_for(console, overload, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    async with console(overload) as terminal:
        await terminal.press("C")
        await terminal.until(lambda: list(tmp_path.glob("pdmuxd-tenants-now-*.csv")))
        (file,) = tmp_path.glob("*.csv")
        await terminal.until(lambda: "search" in file.read_text())
        lines = file.read_text().splitlines()
        assert lines[0].startswith("tenant,in time,asked,late,oldest")
        assert lines[1].startswith("! chat,")


async def test_a_panel_fills_the_screen_when_it_is_zoomed(console, overload):
    async with console(overload) as terminal:
        await terminal.press("z", "z")
        assert terminal.text.splitlines()[0].startswith("─ Tenants, worst first")
        await terminal.press("escape")
        assert terminal.text.splitlines()[0].startswith("[1 Overview]")
