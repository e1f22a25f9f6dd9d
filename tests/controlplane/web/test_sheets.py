"""Pages of tables and forms: they say what REST says, give each table as CSV, and change what a form asks."""

from __future__ import annotations

import csv
import html
import io
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from admin_daemon import MadeUpQuarantine
from browsers import Browser
from msgspec import structs
from profiling import greeting_of, measured_profile
from replay_jobs import Jobs
from stores import AdminCalls
from telemetry_feeds import HELLO, heartbeat, loaded_telemetry, predicting

from pdmuxd.controlplane.api.access import PAGES
from pdmuxd.controlplane.events.messages import AlarmEvent
from pdmuxd.controlplane.history.alarms import write_alarm
from pdmuxd.controlplane.node.engine_actions import Done
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.node.traffic_replays import Outcome, TenantOutcome
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.controlplane.web.settings import SettingInForce
from pdmuxd.controlplane.web.tables import Column, Link, Table
from pdmuxd.engine.link.messages import ShadowCounts

SHADOW = ShadowCounts(
    policy="duet",
    decisions=10,
    same=9,
    other_mode=1,
    other_split=0,
    other_requests=0,
    late=1,
    shadow_late=2,
    prefill_sms=960,
    shadow_prefill_sms=900,
)
SETTINGS = {
    "data.port": SettingInForce(value=8080, origin="default", description="Port of the OpenAI API."),
    "admin.allow_remote": SettingInForce(
        value=False, origin="file x.toml", description="=1+1", waits="true when restarted"
    ),
}


class Actions:
    """An engine that does what it is told."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def drain(self) -> Done:
        self.done.append("drain")
        return Done(action="drain", changed=True, state="draining", text="2 in flight finish")

    start = resume = drain

    def restart(self, *, at_once: bool) -> Done:
        self.done.append(f"restart {at_once}")
        return Done(action="restart", changed=True, state="draining", text="ended")


@pytest.fixture
def known(control_plane: ControlPlane) -> Telemetry:
    for name in ("chat", "search"):
        control_plane.create_tenant(name)
    made = loaded_telemetry(control_plane.snapshot())
    stats = heartbeat(shadow=SHADOW, prefill_sms=96, decode_sms=36, uptime_s=100.0)
    made.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO, stats=stats)
    return made


@pytest.fixture
def actions() -> Actions:
    return Actions()


@pytest.fixture
def jobs() -> Jobs:
    return Jobs()


@pytest.fixture
def call(control_plane: ControlPlane, known: Telemetry, actions: Actions, jobs: Jobs) -> AdminCalls:
    return AdminCalls(
        control_plane,
        telemetry=known,
        predictors=predicting,
        actions=actions,
        replays=jobs,
        quarantine=MadeUpQuarantine(),
        settings=lambda: SETTINGS,
    )


@pytest.fixture
async def browser(call: AdminCalls) -> Browser:
    made = Browser(call)
    await made.log_in()
    return made


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


SHEETS = [
    path
    for method, path in PAGES
    if method == "GET" and "{" not in path and path not in ("/ui", "/ui/live", "/ui/tenants.csv")
]


@pytest.mark.parametrize("path", SHEETS)
async def test_every_table_of_a_page_is_there_as_csv(browser: Browser, path: str) -> None:
    page = await browser.get(path)
    assert page.status_code == 200, page.text
    for link in re.findall(r'class="csv" href="([^"]+)"', page.text):
        sent = await browser.get(path + html.unescape(link))
        assert sent.headers["Content-Type"].startswith("text/csv")
        assert sent.headers["Content-Disposition"].startswith("attachment; filename=")
        lines = list(csv.reader(io.StringIO(sent.text)))
        assert len(lines) > 1
        assert {len(line) for line in lines} == {len(lines[0])}


@pytest.mark.parametrize("path", SHEETS)
async def test_a_page_says_that_there_is_nothing_when_no_daemon_runs(
    control_plane: ControlPlane, path: str
) -> None:
    browser = Browser(AdminCalls(control_plane))
    await browser.log_in()
    page = await browser.get(path)
    assert page.status_code == 200, page.text


async def test_an_unknown_table_is_refused_with_those_that_there_are(browser: Browser) -> None:
    answer = await browser.get("/ui/partitions?csv=nothing")
    assert answer.status_code == 422
    assert "csv is 'nothing'; this page has the tables splits, guard, drift" in html.unescape(answer.text)


async def test_the_guard_and_splits_are_those_of_rest(browser: Browser, call: AdminCalls) -> None:
    cells = (await call("GET", "/api/v1/guard")).json()["cells"]
    told = rows((await browser.get("/ui/partitions?csv=guard")).text)
    assert [float(row["ratio"]) for row in told] == [cell["ratio"] for cell in cells] != []
    groups = (await call("GET", "/api/v1/partitions")).json()["groups"]
    shown = rows((await browser.get("/ui/partitions?csv=splits")).text)
    assert [row["decisions"] for row in shown[: len(groups)]] == [str(one["decisions"]) for one in groups]


async def test_the_engine_is_drained_when_the_box_is_ticked_and_not_before(
    browser: Browser, actions: Actions, control_plane: ControlPlane
) -> None:
    page = (await browser.get("/ui/gpu")).text
    assert "r1 r2" in page, "what is held back names its requests"
    token = {"form_token": await browser.form_token("/ui/gpu")}
    refused = await browser.post("/ui/gpu/drain", token)
    assert (refused.status_code, actions.done) == (422, [])
    assert (await browser.post("/ui/gpu/explode", token | {"sure": "yes"})).status_code == 422
    assert (await browser.post("/ui/gpu/drain", {"sure": "yes"})).status_code == 403
    done = await browser.post("/ui/gpu/drain", token | {"sure": "yes", "why": "a new driver"})
    assert (done.status_code, actions.done) == (303, ["drain"])
    assert (await browser.post("/ui/gpu/restart", token | {"sure": "yes"})).status_code == 303
    assert actions.done == ["drain", "restart False"]
    entry = control_plane.audit(action="engine.drain")[0]
    assert (entry.who, entry.why) == ("admin-token", "a new driver")


async def test_a_profile_is_put_in_force_and_out_again(
    browser: Browser, control_plane: ControlPlane, known: Telemetry
) -> None:
    profile = measured_profile()
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=greeting_of())
    number = control_plane.profiles.add(profile, origin="measured").profile_id
    page = (await browser.get(f"/ui/profiles/{number}")).text
    assert f"{profile.name}, version 1, not in force" in page
    assert len(rows((await browser.get(f"/ui/profiles/{number}?csv=fits")).text)) == len(profile.fits)
    sent = {"form_token": await browser.form_token(f"/ui/profiles/{number}"), "version": "0"}
    sent |= {"profile_id": str(number), "force": "yes"}
    assert (await browser.post("/ui/profiles", sent | {"do": "activate"})).status_code == 303
    active = control_plane.profiles.active()
    assert active is not None
    assert active.profile_id == number
    assert (await browser.post("/ui/profiles", sent | {"do": "deactivate"})).status_code == 412
    now = {"version": str(control_plane.profiles.active_version())}
    assert (await browser.post("/ui/profiles", sent | now | {"do": "nothing"})).status_code == 422
    assert (await browser.post("/ui/profiles", sent | now | {"do": "deactivate"})).status_code == 303
    assert control_plane.profiles.active() is None
    assert (await browser.get("/ui/profiles/99")).status_code == 404


async def test_a_profile_for_another_device_is_refused_in_words(
    browser: Browser, control_plane: ControlPlane, known: Telemetry
) -> None:
    profile = measured_profile()
    other = structs.replace(greeting_of(), total_sms=7)
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=other)
    number = control_plane.profiles.add(profile, origin="measured").profile_id
    sent = {"form_token": await browser.form_token("/ui/profiles"), "version": "0", "do": "activate"}
    answer = await browser.post("/ui/profiles", sent | {"profile_id": str(number)})
    assert answer.status_code in (409, 422)
    assert control_plane.profiles.active() is None


async def test_a_policy_is_set_with_its_shadow_and_set_back(
    browser: Browser, control_plane: ControlPlane
) -> None:
    page = (await browser.get("/ui/policy")).text
    assert "90.0%" in page, "so many of the shadow's decisions are the same"
    sent = {"form_token": await browser.form_token("/ui/policy"), "version": "0"}
    typed = {"policy": "muxwise", "shadow": "duet", "splits": "112|20, 96 | 36", "why": "a try", "do": "set"}
    assert (await browser.post("/ui/policy", sent | typed)).status_code == 303
    held = control_plane.scheduling.current()
    assert (held.version, held.scheduling.policy, held.scheduling.shadow) == (1, "muxwise", "duet")
    assert held.scheduling.partitions == ((112, 20), (96, 36))
    assert control_plane.audit(action="policy.set")[0].why == "a try"
    stale = await browser.post("/ui/policy", sent | typed)
    assert stale.status_code == 412
    assert 'value="112|20, 96 | 36"' in stale.text, "what was typed stays"
    assert (await browser.post("/ui/policy", sent | {"version": "1", "do": "rollback"})).status_code == 303
    assert control_plane.scheduling.current().scheduling.policy is None


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ({"policy": "nobody"}, "unknown policy 'nobody'"),
        ({"splits": "96"}, "splits has '96'"),
        ({"splits": "96|x"}, "splits has '96|x'"),
        ({"splits": "100|100"}, "132 SMs"),
        ({"shadow": "x" * 201}, "shadow has 201 characters"),
        ({"why": "a\nb"}, "why is"),
        ({"version": ""}, "version is missing"),
    ],
)
async def test_a_policy_stays_when_what_was_typed_is_wrong(
    browser: Browser, control_plane: ControlPlane, typed: dict[str, str], said: str
) -> None:
    sent = {"form_token": await browser.form_token("/ui/policy"), "version": "0", "do": "set"}
    answer = await browser.post("/ui/policy", sent | typed)
    assert answer.status_code == 422
    assert said in html.unescape(answer.text)
    assert control_plane.scheduling.current().version == 0


async def test_what_if_has_the_answers_of_rest_side_by_side(browser: Browser, call: AdminCalls) -> None:
    load = {"decode_bs": 16, "decode_context_tokens": 2000, "prefill_new_tokens": 4096}
    query = "&".join(f"{name}={value}" for name, value in load.items())
    told = rows((await browser.get(f"/ui/what-if?tbt_ms=30+5&{query}&csv=answers")).text)
    for row, target in zip(told, (30, 5), strict=True):
        rest = (await call("POST", "/api/v1/what-if", json={"tbt_ms": target} | load)).json()
        assert row["feasible"] == str(rest["feasible"])
        assert float(row["lowest_feasible_tbt_ms"]) == rest["lowest_feasible_tbt_ms"]
        assert row["text"] == rest["text"]
    page = (await browser.get(f"/ui/what-if?tbt_ms=30+5&{query}")).text
    assert 'value="30 5"' in page
    assert "16 was given" in page


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("tbt_ms=soon", "tbt_ms is"),
        ("tbt_ms=0", "tbt_ms is 0"),
        ("tbt_ms=1+2+3+4+5+6+7", "tbt_ms has 7 targets; allowed are 6"),
        ("tbt_ms=30&decode_bs=1.5", "decode_bs is 1.5"),
        ("tbt_ms=30&decode_bs=-1", "decode_bs is -1"),
    ],
)
async def test_what_if_says_what_is_wrong_beside_what_was_typed(
    browser: Browser, query: str, said: str
) -> None:
    answer = await browser.get(f"/ui/what-if?{query}")
    assert answer.status_code == 422
    assert said in html.unescape(answer.text)
    assert 'name="tbt_ms"' in answer.text


async def test_what_if_says_that_there_is_no_engine(control_plane: ControlPlane) -> None:
    browser = Browser(AdminCalls(control_plane))
    await browser.log_in()
    answer = await browser.get("/ui/what-if?tbt_ms=30")
    assert answer.status_code == 503
    assert "engine" in answer.text


async def test_a_replay_is_begun_for_each_target_and_policy(browser: Browser, jobs: Jobs) -> None:
    sent = {"form_token": await browser.form_token("/ui/replays"), "minutes": "5", "rate_scale": "2"}
    typed = {"tenant": "chat", "tbt_ms": "20 30", "policies": "muxwise, duet"}
    done = await browser.post("/ui/replays", sent | typed)
    assert (done.status_code, done.headers["Location"]) == (303, "/ui/replays/0c8b")
    assert [(one.policy, one.targets["chat"].tbt_s, one.rate_scale) for one in jobs.asked] == [
        ("muxwise", 0.02, 2.0),
        ("muxwise", 0.03, 2.0),
        ("duet", 0.02, 2.0),
        ("duet", 0.03, 2.0),
    ]
    for wrong, said in (
        ({"tenant": ""}, "tenant is empty"),
        ({"tbt_ms": "1 2 3 4 5 6 7"}, "these are 14 combinations; allowed are 12"),
        ({"minutes": "0"}, "minutes is 0"),
        ({"policies": "nobody"}, "unknown policy 'nobody'"),
        ({"tbt_ms": "x"}, 'tbt_ms is "x"'),
    ):
        answer = await browser.post("/ui/replays", sent | typed | wrong)
        assert answer.status_code == 422, wrong
        alert = re.search(r'role="alert">(.*)</p>', answer.text)
        assert alert is not None
        assert said in html.unescape(alert[1])
    assert (await browser.post("/ui/replays", sent | typed | {"tenant": "nobody"})).status_code == 404


async def test_a_replay_shows_outcomes_side_by_side_and_looks_again_until_it_ends(
    browser: Browser, jobs: Jobs
) -> None:
    assert (await browser.get("/ui/replays/0c8b")).headers["Refresh"] == "2"
    tenant = TenantOutcome(
        tenant="chat",
        requests=10,
        finished=10,
        ttft_p50_s=0.1,
        ttft_p99_s=0.2,
        ttft_attainment_ratio=1.0,
        tbt_p99_s=0.03,
        tbt_attainment_ratio=None,
        promised_ratio=0.99,
        kept=True,
        needed_ttft_fixed_s=0.05,
    )
    outcome = Outcome(
        label="in force",
        policy="auto",
        requests=10,
        finished=10,
        span_s=60.0,
        goodput_per_s=0.16,
        prefill_sm_ratio=0.1,
        decode_sm_ratio=0.2,
        tenants=(tenant,),
    )
    other = replace_label(outcome, "TBT 20 ms", kept=False)
    jobs.job = replace(jobs.job, state="done", done=20, outcomes=(outcome, other))
    answer = await browser.get("/ui/replays/0c8b")
    assert "Refresh" not in answer.headers
    told = rows((await browser.get("/ui/replays/0c8b?csv=tenants")).text)
    assert [(row["label"], row["kept"], row["ttft_p99_ms"]) for row in told] == [
        ("in force", "True", "200.0"),
        ("TBT 20 ms", "False", "200.0"),
    ]


def replace_label(outcome: Outcome, label: str, *, kept: bool) -> Outcome:
    tenants = tuple(structs.replace(one, kept=kept) for one in outcome.tenants)
    return structs.replace(outcome, label=label, tenants=tenants)


async def test_settings_name_their_origin_and_what_waits(browser: Browser) -> None:
    told = rows((await browser.get("/ui/settings?csv=settings")).text)
    assert [(row["key"], row["value"], row["origin"]) for row in told] == [
        ("data.port", "8080", "default"),
        ("admin.allow_remote", "False", "file x.toml"),
    ]
    assert told[1]["waits"] == "true when restarted"
    assert told[1]["description"] == "'=1+1", "a spreadsheet computes nothing"


async def test_a_reader_sees_no_path_of_the_machine(control_plane: ControlPlane) -> None:
    held = {
        "state_dir": "/home/ada/.pdmuxd",
        "database_url": "sqlite:////srv/state/pdmuxd.db",
        "engine.model": "meta-llama/Llama-3.1-8B",
        "engine.sglang": ["--model-path", "/models/l", "--dtype=auto", "~/x", "../y"],
        "tracing.endpoint": "http://127.0.0.1:4318",
        "data.port": 8080,
    }
    settings = {
        key: SettingInForce(value=value, origin="file /etc/x.toml", description="", waits="/b when restarted")
        for key, value in held.items()
    }
    browser = Browser(AdminCalls(control_plane, settings=lambda: settings))
    await browser.log_in()
    shown = {row["key"]: row for row in rows((await browser.get("/ui/settings?csv=settings")).text)}
    assert shown["state_dir"]["value"] == "/home/ada/.pdmuxd"
    assert shown["state_dir"]["origin"] == "file /etc/x.toml"
    await browser.log_in(control_plane.admin_tokens.issue("look", role="reader").secret)
    for text in (
        (await browser.get("/ui/settings")).text,
        (await browser.get("/ui/settings?csv=settings")).text,
    ):
        assert not re.search("/home|/srv|/models|/etc/x|/b when|~/x|[.]/y", text)
    shown = {row["key"]: row for row in rows(text)}
    assert {key: row["value"] for key, row in shown.items()} == {
        "state_dir": "(a path)",
        "database_url": "sqlite:(a path)",
        "engine.model": "meta-llama/Llama-3.1-8B",
        "engine.sglang": "['--model-path', '(a path)', '--dtype=auto', '(a path)', '(a path)']",
        "tracing.endpoint": "http://127.0.0.1:4318",
        "data.port": "8080",
    }
    assert {(row["origin"], row["waits"]) for row in shown.values()} == {
        ("file (a path)", "(a path) when restarted")
    }


async def test_alarms_are_those_of_the_time_that_is_asked_for(
    browser: Browser, control_plane: ControlPlane
) -> None:
    begun = datetime(2026, 1, 31, 11, 0, tzinfo=UTC)
    with control_plane.store.transaction() as session:
        for hour, tenant in enumerate(("chat", "search")):
            at = begun + timedelta(hours=hour)
            alarm = AlarmEvent(
                id=f"late_now:{tenant}",
                kind="late_now",
                tenant=tenant,
                severity="warning",
                state="raised",
                at=at,
                since=at,
                text=f"{tenant} is late",
            )
            write_alarm(session, alarm, control_plane.store.node)
            cleared = alarm.model_copy(update={"state": "cleared", "at": at + timedelta(minutes=5)})
            write_alarm(session, cleared, control_plane.store.node)
        session.commit()
    for query, wanted in (
        ("", {"chat", "search"}),
        ("?at=2026-01-31T11:20:00Z&window=30m", {"chat"}),
        ("?at=2026-01-31T12:20:00Z&window=30m", {"search"}),
        ("?at=2026-01-31T12:20:00Z&window=2h", {"chat", "search"}),
        ("?at=2026-01-30T12:20:00Z&window=2h", set()),
        ("?tenant=search", {"search"}),
        ("?kind=ttft_burn", set()),
    ):
        found = rows((await browser.get(f"/ui/alarms{query}{'&' if query else '?'}csv=alarms")).text)
        assert {row["tenant"] for row in found} == wanted, query
    page = (await browser.get("/ui/alarms?at=2026-01-31T11:20:00Z&window=30m&tenant=chat")).text
    assert 'name="window" value="30m"' in page, "a search keeps the time"
    assert "tenant=chat&amp;at=2026-01-31T10%3A50%3A00Z&amp;window=30m" in page, "and a time the search"


@pytest.mark.parametrize("path", ["/ui/decisions", "/ui/requests", "/ui/tenants/chat/requests"])
async def test_a_time_that_is_over_is_read_from_the_history(browser: Browser, path: str) -> None:
    page = await browser.get(f"{path}?at=2026-01-31T12:00:00Z&window=2h")
    assert page.status_code == 200
    assert "2 hours before" in page.text
    assert "2026-01-31 12:00:00" in page.text
    assert 'class="empty"' in page.text


@pytest.mark.parametrize("window", ["30m", "2h", "24h", "7d", "30d"])
@pytest.mark.parametrize("path", ["/ui/decisions", "/ui/requests", "/ui/alarms", "/ui/audit"])
async def test_a_length_until_now_is_shown(browser: Browser, path: str, window: str) -> None:
    page = await browser.get(f"{path}?window={window}")
    assert page.status_code == 200
    assert "The last " in page.text


def test_a_cell_that_leads_elsewhere_is_its_text_in_csv() -> None:
    table = Table(
        name="t",
        title="T",
        columns=(Column("a", "A"), Column("b", "B")),
        rows=[(Link("x", "/ui/x"), None), ("=2", datetime(2026, 1, 31, tzinfo=UTC))],
        empty="",
    )
    assert table.csv() == "a,b\nx,\n'=2,2026-01-31T00:00:00+00:00\n"
