"""`pdmuxd profile run` on the emulated engine's process."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from pdmuxd.daemon.profiling.engine import MeasuringEngine, measuring_engine
from pdmuxd.daemon.profiling.run import run_campaign
from pdmuxd.daemon.supervisor.plan import EnginePlan, emulator_command
from pdmuxd.engine.core.errors import EngineError, EngineLostError, ProfileError
from pdmuxd.engine.link.measuring import Measure
from pdmuxd.engine.profiling.campaign import Progress
from pdmuxd.engine.profiling.measurement import Target

ASKED = Measure(
    point_id=1, mode="decode", prefill_sms=0, decode_sms=36, prefill=(), decode=(500,) * 8, repeats=3
)


def plan_of(folder: Path, command: Sequence[str] | None = None) -> EnginePlan:
    emulated = emulator_command(profile="h200-llama-8b", policy="auto", served_model=None)
    return EnginePlan(
        command=emulated if command is None else lambda *_: command,
        state_dir=folder,
        runtime_dir=folder,
        start_timeout_s=60.0,
        backoff_initial_s=0.1,
        backoff_max_s=0.1,
    )


@pytest.fixture
async def engine() -> AsyncIterator[MeasuringEngine]:
    with tempfile.TemporaryDirectory(prefix="pdm-") as folder:
        async with measuring_engine(plan_of(Path(folder))) as started:
            yield started


@pytest.mark.slow
async def test_a_profile_is_made_of_what_was_measured_when_interrupted(engine: MeasuringEngine) -> None:
    target = Target.of(await engine.hello(60.0))
    stop = asyncio.Event()
    told: list[Progress] = []

    def tell(progress: Progress, elapsed_s: float) -> None:
        told.append(progress)
        assert elapsed_s >= 0.0
        if progress.measured == 60:
            stop.set()

    outcome = await run_campaign(engine, target, name="p", budget_s=60.0, stop=stop, tell=tell)
    assert outcome.broken_off == "interrupted"
    assert outcome.profile.provenance.interrupted
    assert len(outcome.profile.samples) == 60
    assert outcome.profile.model.name == "llama-8b"
    assert 0.0 < told[-1].left_s <= 60.0


@pytest.mark.slow
async def test_the_budget_is_kept_in_the_devices_time_when_it_is_emulated(engine: MeasuringEngine) -> None:
    target = Target.of(await engine.hello(60.0))
    outcome = await run_campaign(
        engine, target, name="p", budget_s=12.0, stop=asyncio.Event(), tell=lambda *_: None
    )
    assert outcome.broken_off is None
    assert 11.0 < outcome.profile.provenance.took_s < 14.0
    assert outcome.profile.guard is not None


async def test_a_point_is_refused_with_its_reason_when_the_engine_cannot(engine: MeasuringEngine) -> None:
    await engine.hello(60.0)
    answer = await engine.measure(ASKED)
    assert len(answer.decode_s) == 3
    refused = Measure(
        point_id=2, mode="decode", prefill_sms=0, decode_sms=999, prefill=(), decode=(5,), repeats=1
    )
    assert "not possible on 132 SMs" in str((await engine.measure(refused)).error)


async def test_the_last_words_are_told_when_the_engine_ends_while_starting(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "print('no such model'); raise SystemExit(3)"]
    with tempfile.TemporaryDirectory(prefix="pdm-") as folder:
        async with measuring_engine(plan_of(Path(folder), command)) as started:
            with pytest.raises(EngineLostError, match=r"exited with code 3.*no such model"):
                await started.hello(60.0)


async def test_it_is_told_when_the_engine_cannot_be_started() -> None:
    with tempfile.TemporaryDirectory(prefix="pdm-") as folder, pytest.raises(EngineError, match="be started"):
        async with measuring_engine(plan_of(Path(folder), ["/nowhere/engine"])):
            pass


async def test_an_engine_is_refused_when_it_cannot_measure(engine: MeasuringEngine) -> None:
    hello = await engine.hello(60.0)
    with pytest.raises(ProfileError, match="cannot measure"):
        Target.of(msgspec.structs.replace(hello, can_measure=False))
    with pytest.raises(ProfileError, match="does not tell the shapes"):
        Target.of(msgspec.structs.replace(hello, device_shape=None))
