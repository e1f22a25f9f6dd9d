"""Replays as jobs: outcomes side by side, bounds, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from telemetry_feeds import HELLO, directory, request_record

from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineStatus
from pdmuxd.controlplane.node.traffic_replays import Job, WantedSharing, WantedVariant
from pdmuxd.daemon.traffic import jobs as module
from pdmuxd.daemon.traffic.jobs import TrafficReplays
from pdmuxd.daemon.traffic.ring import TrafficRing
from pdmuxd.daemon.traffic.task import ReplayTask
from pdmuxd.daemon.traffic.worker import replay
from pdmuxd.engine.core.errors import ConflictError, EngineError, NotFoundError
from pdmuxd.engine.core.slo import Slo

NOW_S = 10_000.0


def variant(label: str, **changes: object) -> WantedVariant:
    return WantedVariant(label=label, **({"targets": {}, "tenant_scale": {}} | changes))  # type: ignore[arg-type]


class World:
    def __init__(self, folder: Path) -> None:
        self.ring = TrafficRing(folder, max_bytes=1 << 20)
        self.status: EngineStatus = replace(NO_ENGINE, state="serving", hello=HELLO)
        self.directory = directory(chat=0.04, search=0.06)
        self.replays = TrafficReplays(
            self.ring,
            status=lambda: self.status,
            wanted=lambda: self.directory.engine_settings("auto"),
            directory=lambda: self.directory,
            emulated="h200-llama-8b",
            clock=lambda: NOW_S,
            timeout_s=240.0,
        )

    def send(self, count: int) -> None:
        for number in range(count):
            tenant, tokens = ("chat", 400) if number % 3 else ("search", 6000)
            at_s = NOW_S - 60.0 + 0.2 * number
            names = (7, 8) if tenant == "chat" else ()
            record = request_record(
                request_id=str(number), tenant=tenant, new_tokens=tokens, output_tokens=30
            )
            self.ring.on_ended(record, at_s, (4 * tokens, names), at_s + 1.0)

    async def task(self, *variants: WantedVariant) -> ReplayTask:
        found = self.ring.read(since_s=0.0, limit=1000)
        assert self.status.hello is not None
        return self.replays._task(self.status.hello, found, variants)

    async def ended(self, job: Job) -> Job:
        while self.replays.get(job.job_id).state in ("waiting", "running"):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        return self.replays.get(job.job_id)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    made = World(tmp_path)
    yield made
    await made.replays.close()


async def test_both_outcomes_are_side_by_side_when_a_worker_has_run(world: World) -> None:
    world.send(60)
    job = await world.replays.begin((variant("twice", rate_scale=2.0),), minutes=5)
    assert (job.state, job.requests, job.total) == ("waiting", 60, 120)
    done = await world.ended(job)
    assert (done.state, done.reason, done.done) == ("done", None, 120)
    before, after = done.outcomes
    assert (before.label, before.policy, before.finished) == ("in force", "auto", 60)
    assert after.span_s == pytest.approx(before.span_s / 2)
    assert [one.tenant for one in before.tenants] == ["chat", "search"]
    assert before.tenants[0].kept


async def test_variants_differ_in_what_they_are_asked_for(world: World) -> None:
    world.send(60)
    strict = Slo(ttft_fixed_s=0.001, ttft_per_1k_new_tokens_s=0.0, tbt_s=0.04, attainment_ratio=0.99)
    outcomes = replay(
        await world.task(
            variant("fewer", tenant_scale={"search": 0.0}),
            variant("more", tenant_scale={"chat": 3.0}),
            variant("split", policy="muxwise", partitions=((72, 60),)),
            variant("strict", targets={"chat": strict}),
        ),
        lambda _: None,
    )
    base, fewer, more, split, hard = outcomes
    assert (base.requests, fewer.requests, more.requests) == (60, 40, 140)
    assert [one.tenant for one in fewer.tenants] == ["chat"]
    assert split.policy == "muxwise"
    assert split.prefill_sm_ratio != base.prefill_sm_ratio
    assert (hard.tenants[0].kept, hard.tenants[0].ttft_attainment_ratio) == (False, 0.0)
    needed_s = hard.tenants[0].needed_ttft_fixed_s
    assert needed_s is not None
    assert needed_s > strict.ttft_fixed_s
    assert replay(await world.task(), lambda _: None)[0] == base, "the same again"


async def test_tenants_are_served_by_their_class_and_limits_or_by_those_asked_for(world: World) -> None:
    chat = world.directory.tenants["chat"]
    search = replace(world.directory.tenants["search"], priority_class="batch", weight=3.0, max_wait_ms=900)
    world.directory = replace(world.directory, tenants={"chat": chat, "search": search})
    world.send(90)
    asked = WantedSharing(priority_class="interactive", late_action="refuse")
    task = await world.task(variant("first", sharing={"search": asked}))
    base, first = ({one.tenant: one for one in each.tenants} for each in task.variants)
    assert base["search"] == search.for_engine()
    assert (base["search"].priority_class, base["search"].weight, base["search"].max_wait_ms) == (
        "batch",
        3.0,
        900,
    )
    assert (first["search"].priority_class, first["search"].late_action) == ("interactive", "refuse")
    assert (first["search"].weight, first["chat"]) == (3.0, base["chat"])


async def test_who_is_put_first_is_served_first(world: World) -> None:
    world.send(120)
    first = {"chat": WantedSharing(priority_class="interactive")}
    last = {"chat": WantedSharing(priority_class="batch")}
    outcomes = replay(
        await world.task(
            variant("first", sharing=first, rate_scale=14.0), variant("last", sharing=last, rate_scale=14.0)
        ),
        lambda _: None,
    )
    _, before, after = ({one.tenant: one for one in each.tenants} for each in outcomes)
    assert before["chat"].ttft_attainment_ratio > after["chat"].ttft_attainment_ratio + 0.1


async def test_a_policy_that_cannot_run_fails_the_job(world: World) -> None:
    world.send(3)
    job = await world.replays.begin((variant("bad", policy="static:100,31"),), minutes=5)
    done = await world.ended(job)
    assert done.state == "failed"
    assert done.reason is not None
    assert "100,31 is not possible" in done.reason


async def test_it_is_refused_when_there_is_nothing_to_replay(world: World) -> None:
    with pytest.raises(EngineError, match="no request that ended was captured in the last 5 minutes"):
        await world.replays.begin((variant("x"),), minutes=5)
    world.send(3)
    world.status = NO_ENGINE
    with pytest.raises(EngineError, match="no engine has introduced itself"):
        await world.replays.begin((variant("x"),), minutes=5)


async def test_jobs_are_bounded_and_end_when_they_are_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.send(3)
    pids = []

    async def hang(self, entry, task):
        process = await asyncio.create_subprocess_exec("sleep", "600")
        pids.append(process.pid)
        try:
            await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    monkeypatch.setattr(TrafficReplays, "_follow", hang)
    jobs = [await world.replays.begin((variant("x"),), minutes=5) for _ in range(module.MOST_WAITING + 1)]
    with pytest.raises(ConflictError, match="3 replays wait already"):
        await world.replays.begin((variant("x"),), minutes=5)
    while not pids:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    assert [one.state for one in world.replays.latest()] == ["waiting"] * 3 + ["running"]
    for job in jobs:
        assert world.replays.cancel(job.job_id).state == "cancelled"
    await world.replays.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pids[0], 0)
    with pytest.raises(NotFoundError):
        world.replays.get("nobody")


async def test_the_load_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send(50)
    monkeypatch.setattr(module, "MOST_COPIES", 500)
    with pytest.raises(ConflictError, match="allowed are 500"):
        await world.replays.begin((variant("x", tenant_scale={"chat": 20.0}),), minutes=5)


async def test_only_the_latest_are_kept(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.send(3)
    monkeypatch.setattr(module, "KEPT", 2)
    for _ in range(4):
        job = await world.replays.begin((variant("x"),), minutes=5)
        world.replays.cancel(job.job_id)
    assert len(world.replays.latest()) <= 3
