"""Which fixed plan is learned, for which engine, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from telemetry_feeds import HELLO, directory

from pdmuxd.controlplane.node.engine_status import NO_ENGINE
from pdmuxd.controlplane.node.traffic_replays import Job, Outcome, WantedVariant
from pdmuxd.daemon.traffic.fallback import CANDIDATES, FallbackKeeper, judged
from pdmuxd.engine.core.errors import ConflictError, EngineError
from pdmuxd.engine.core.misprediction_breaker import WRONG_RATIO
from pdmuxd.engine.core.policies.fusedsteps import FIXED_STEP_TOKENS


def outcome(goodput_per_s: float) -> Outcome:
    return Outcome(
        label="",
        policy="auto",
        requests=500,
        finished=500,
        span_s=60.0,
        goodput_per_s=goodput_per_s,
        prefill_sm_ratio=0.0,
        decode_sm_ratio=0.0,
        tenants=(),
    )


def outcomes(**good: tuple[float, float]) -> tuple[Outcome, ...]:
    """Of the policy in force 10 and 8, of a plan what is named (as predicted, slower), else 5 and 4."""
    pairs = [(10.0, 8.0), *(good.get(f"c{tokens}", (5.0, 4.0)) for tokens in CANDIDATES)]
    return tuple(outcome(one) for fast, slow in pairs for one in (fast, WRONG_RATIO * slow))


@pytest.mark.parametrize(
    ("good", "present", "chosen"),
    [
        ({}, 512, 512),
        ({}, 1024, 1024),
        ({"c256": (5.0, 4.5)}, 512, 256),
        ({"c256": (1.0, 4.5)}, 512, 256),
        ({"c256": (5.0, 4.02)}, 512, 512),
        ({"c256": (6.0, 4.0)}, 512, 256),
        ({"c256": (6.0, 3.0)}, 512, 512),
        ({"c256": (5.0, 4.5), "c1024": (5.0, 5.0)}, 512, 1024),
    ],
)
def test_the_plan_is_taken_that_serves_most_where_it_is_needed(
    good: dict[str, tuple[float, float]], present: int, chosen: int
) -> None:
    found = judged(outcomes(**good), present=present, learned_s=1.0, requests=500)
    assert found.step_tokens == chosen


def test_regret_is_what_is_lost_against_the_policy_in_force() -> None:
    found = judged(outcomes(c256=(12.0, 6.0)), present=512, learned_s=1.0, requests=500)
    assert (found.goodput_per_s, found.slower_goodput_per_s) == (10.0, 8.0)
    assert (found.regret_ratio, found.slower_regret_ratio) == (-0.2, 0.25)


class Replays:
    """Answers at once."""

    def __init__(self) -> None:
        self.asked: tuple[WantedVariant, ...] = ()
        self.job = Job(job_id="1", state="done", created_s=0.0, requests=500, done=1, total=1)

    async def begin(
        self, variants: tuple[WantedVariant, ...], *, minutes: float, least: int, most: int
    ) -> Job:
        assert (least, most) == (200, 500)
        if self.job.requests < least:
            raise EngineError("too few")
        self.asked = variants
        return self.job

    async def ended(self, job_id: str) -> Job:
        assert job_id == "1"
        return self.job


class World:
    def __init__(self, folder: Path) -> None:
        self.replays, self.status = Replays(), replace(NO_ENGINE, state="serving", hello=HELLO)
        self.told: list[int | None] = []
        self.path = folder / "fallbacks.json"
        self.keeper = self.started()

    def started(self) -> FallbackKeeper:
        return FallbackKeeper(
            self.path,
            self.replays,  # type: ignore[arg-type]
            status=lambda: self.status,
            directory=lambda: directory(chat=0.034, search=0.06),
            clock=lambda: 1000.0,
            publish=lambda event: self.told.append(event.tokens_for(HELLO)),
        )

    async def learn(self, **good: tuple[float, float]) -> None:
        self.replays.job = replace(self.replays.job, outcomes=outcomes(**good))
        await self.keeper.look()


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


async def test_it_is_kept_for_engines_of_that_model_and_device_when_it_was_learned(world: World) -> None:
    assert (world.keeper.state().step_tokens, world.keeper.tokens_for(HELLO)) == (FIXED_STEP_TOKENS, None)
    await world.learn(c256=(5.0, 4.5))
    state = world.keeper.state()
    assert (state.step_tokens, state.is_learning, world.told) == (256, False, [256])
    again = world.started()
    assert again.tokens_for(HELLO) == 256
    assert again.state().learned == state.learned
    assert again.tokens_for(msgspec.structs.replace(HELLO, device="NVIDIA A100")) is None
    assert again.tokens_for(msgspec.structs.replace(HELLO, model_hash="other")) is None
    await world.learn()
    assert world.told == [256], "the same one: nobody need be told"


async def test_every_plan_is_asked_for_on_the_device_as_predicted_and_slower(world: World) -> None:
    await world.learn()
    slow_policy, *rest = world.replays.asked
    assert (slow_policy.policy, slow_policy.rate_scale) == (None, WRONG_RATIO)
    assert slow_policy.targets["chat"].tbt_s == pytest.approx(0.02)
    assert [one.policy for one in rest[::2]] == [f"chunked:{tokens}" for tokens in CANDIDATES]
    assert [one.policy for one in rest[1::2]] == [one.policy for one in rest[::2]]
    assert {one.rate_scale for one in rest[::2]} == {1.0}
    assert {one.rate_scale for one in rest[1::2]} == {WRONG_RATIO}


async def test_it_says_why_when_nothing_was_learned(world: World) -> None:
    world.replays.job = replace(world.replays.job, state="failed", reason="its worker failed")
    await world.keeper.look()
    assert world.keeper.state().reason == "the replay is failed: its worker failed"
    assert not world.path.exists()
    world.replays.job = replace(world.replays.job, requests=100)
    await world.keeper.look()
    with pytest.raises(EngineError, match="too few"):
        await world.keeper.begin()
    world.status = NO_ENGINE
    with pytest.raises(EngineError, match="no engine has introduced itself"):
        await world.keeper.begin()


async def test_one_look_is_taken_at_a_time(world: World) -> None:
    world.replays.job = replace(world.replays.job, outcomes=outcomes())
    assert (await world.keeper.begin()).is_learning
    with pytest.raises(ConflictError, match="already"):
        await world.keeper.begin()
    await world.keeper.close()


def test_a_damaged_file_is_as_none(world: World) -> None:
    world.path.write_text('{"x": 3}')
    assert world.started().state().learned is None
