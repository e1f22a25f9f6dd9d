"""Pages of a time that is over: what is kept is shown, and what is not kept is said."""

from __future__ import annotations

import csv
import html
import io
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from browsers import Browser
from profiling import greeting_of, measured_profile
from stores import AdminCalls, FakeClock
from telemetry_feeds import HELLO, HandClock, step

from pdmuxd.controlplane.history.history import History
from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.node.scheduling import Scheduling
from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.profiling.corrections import Change

PATHS = ("/ui/partitions", "/ui/gpu", "/ui/profiles", "/ui/policy", "/ui/settings")
NOT_KEPT = {
    "/ui/partitions": "The guard's map and how far predictions are off are told of now alone.",
    "/ui/gpu": "Its counters, its log and who was held back are told of now alone.",
    "/ui/profiles": "An activation that was gone back on is only in the audit.",
    "/ui/policy": "What the shadow would have done is told of now alone",
    "/ui/settings": "The daemon's own keys are told of now alone.",
}


def at(hours: int) -> str:
    return f"{datetime.now(UTC) + timedelta(hours=hours):%Y-%m-%dT%H:%M:%SZ}"


@pytest.fixture
async def browser(control_plane: ControlPlane, clock: FakeClock) -> Browser:
    clock.now = datetime.now(UTC) - timedelta(minutes=10)
    for name in ("chat", "search"):
        control_plane.create_tenant(name)
    known = Telemetry(clock=HandClock(), wall_clock=time.time)
    known.status = lambda: replace(NO_ENGINE, state="serving", hello=HELLO)
    known.on_directory(control_plane.snapshot())
    for number in range(1, 6):
        known.on_message(step(step=number, now_s=number / 10, decode_bs=12))
    history = History(known.recorder, control_plane.store)
    known.recorder.mark("engine", "an engine started: m on H200")
    known.recorder.mark("policy", "the policy is muxwise")
    known.recorder.mark("slo", "chat: TBT 40 to 30 ms", tenant="chat")
    profile = control_plane.profiles.add(measured_profile(), origin="measured")
    control_plane.profiles.activate(profile.profile_id, greeting_of(), force=True)
    lesson = Change(kind="corrected", predictor="decode", sms=36, before=1.0, after=1.2, evidence="40 steps")
    control_plane.profiles.learn(profile.profile_id, [lesson])
    control_plane.scheduling.set(Scheduling(policy="muxwise", shadow=None, partitions=None), None)
    made = Browser(AdminCalls(control_plane, telemetry=known, history=history))
    await made.log_in()
    return made


async def table(browser: Browser, path: str, name: str) -> list[dict[str, str]]:
    answer = await browser.get(f"{path}&csv={name}")
    assert answer.status_code == 200, answer.text
    return list(csv.DictReader(io.StringIO(answer.text)))


@pytest.mark.parametrize("path", PATHS)
async def test_a_page_of_now_leads_to_what_is_kept_and_says_what_is_not(browser: Browser, path: str) -> None:
    now = html.unescape((await browser.get(path)).text)
    assert f'href="{path}?window=30m"' in now
    assert NOT_KEPT[path] not in now
    past = html.unescape((await browser.get(f"{path}?window=30m")).text)
    assert NOT_KEPT[path] in past
    assert f'<a href="{path}">now</a>' in past
    old = await browser.get(f"{path}?at={at(-48)}&window=2h")
    assert old.status_code == 200
    assert "an engine started" not in old.text
    assert "chat: TBT" not in old.text
    assert (await browser.get(f"{path}?at=yesterday")).status_code == 422
    assert (await browser.get(f"{path}?window=1y")).status_code == 422


async def test_each_page_has_the_marks_of_its_subject(browser: Browser) -> None:
    kinds = {
        path: [row["kind"] for row in await table(browser, f"{path}?window=30m", "happened")]
        for path in PATHS
    }
    assert set(kinds["/ui/partitions"]) == {"engine", "policy"}
    assert set(kinds["/ui/gpu"]) == {"engine"}
    assert set(kinds["/ui/policy"]) == {"engine", "policy"}
    assert {"policy", "slo"} <= set(kinds["/ui/settings"])
    assert "engine" not in kinds["/ui/settings"]


async def test_what_was_in_force_then_is_told(browser: Browser) -> None:
    assert "muxwise was to decide at the end" in (await browser.get("/ui/policy?window=30m")).text
    assert "The settings' policy was to decide" in html.unescape(
        (await browser.get(f"/ui/policy?at={at(-48)}")).text
    )
    assert "Profile 1 was to predict at the end" in (await browser.get("/ui/profiles?window=30m")).text
    before = (await browser.get(f"/ui/profiles?at={at(-48)}")).text
    assert "What the engine has of its own was to predict" in before
    assert "Settings version 0 was the newest" in (await browser.get(f"/ui/settings?at={at(-48)}")).text
    assert "Settings version 0 was the newest" not in (await browser.get("/ui/settings?window=30m")).text


async def test_what_was_learned_then_is_told(browser: Browser) -> None:
    for path in ("/ui/partitions", "/ui/profiles"):
        found = await table(browser, f"{path}?window=30m", "learned")
        assert [(row["subject"], row["after"]) for row in found] == [("decode 36", "1.2")]
        assert "Nothing was learned in this time." in (await browser.get(f"{path}?at={at(-48)}")).text


async def test_the_modes_of_a_time_are_the_sums_of_its_decisions(browser: Browser) -> None:
    kinds = await table(browser, "/ui/decisions?window=30m", "kinds")
    modes = await table(browser, "/ui/partitions?window=30m", "modes")
    assert sum(int(row["decisions"]) for row in modes) == sum(int(row["count"]) for row in kinds) > 0
    assert sum(float(row["time_ratio"]) for row in modes) == pytest.approx(1.0)
