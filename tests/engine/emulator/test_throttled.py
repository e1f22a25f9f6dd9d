"""A GPU that suddenly runs a fifth slower: the guard notices, and the targets are met again."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engines import PROFILE, engine, request

from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.loop.requests import Target

MEASURED = replace(PROFILE, guard_default_ratio=1.03)
"""The bound that measuring this device gives; what the papers saw at worst would hide the slowdown."""
TBT_S = 0.0115
THROTTLE_AT_S, END_S = 6.0, 13.0
NOTICED_WITHIN = 50
ATTAINMENT = 0.99


def busy_engine(policy: str) -> EmulatedEngine:
    """Decodes 40 long answers while prompts of 6,000 tokens keep coming."""
    running = engine(policy, step_records=True, profile=MEASURED)
    slo = Slo(ttft_fixed_s=5.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=TBT_S, attainment_ratio=ATTAINMENT)
    running.apply_settings(version=1, policy=policy, slos={"t": Target(slo=slo, version=1)})
    for number in range(40):
        running.submit(request(f"long-{number}", 1000, 4000, tenant="t"), 0.0)
    return running


def steps_of(running: EmulatedEngine, *, start_s: float, end_s: float) -> list[IterationRecord]:
    """Steps with decode beside or with prompt tokens, while prompts arrive every quarter second."""
    records: list[IterationRecord] = []
    arrival_s = start_s
    while arrival_s < end_s:
        running.submit(request(f"p-{arrival_s}", 6000, 2, arrival_s=arrival_s, tenant="t"), arrival_s)
        records += running.drain_records()
        arrival_s += 0.25
    running.advance(end_s)
    records += running.drain_records()
    return [one for one in records if one.decode_bs and one.mode in {"split", "fused"}]


def is_met(step: IterationRecord) -> bool:
    took_s = step.measured_step_s if step.measured_decode_s is None else step.measured_decode_s
    return took_s is not None and took_s <= TBT_S


def throttled(policy: str) -> list[IterationRecord]:
    """The steps after the GPU became slower; before, all targets were met."""
    running = busy_engine(policy)
    before = steps_of(running, start_s=0.0, end_s=THROTTLE_AT_S)
    assert all(map(is_met, before))
    running.throttle(1.2)
    return steps_of(running, start_s=THROTTLE_AT_S, end_s=END_S)


def attainment(steps: list[IterationRecord]) -> float:
    return sum(map(is_met, steps)) / len(steps)


@pytest.mark.parametrize("policy", ["muxwise", "auto"])
def test_targets_are_met_again_within_50_steps_when_the_gpu_throttles(policy: str) -> None:
    after = throttled(policy)
    assert len(after) > 3 * NOTICED_WITHIN
    assert attainment(after[NOTICED_WITHIN:]) >= ATTAINMENT
    assert max(step.guard_ratio or 0.0 for step in after[:NOTICED_WITHIN]) > 1.1


def test_targets_stay_missed_when_the_gpu_throttles_without_a_guard() -> None:
    """`auto:noguard` learns of fused steps that all take longer."""
    assert attainment(throttled("muxwise:noguard")) < 0.5
