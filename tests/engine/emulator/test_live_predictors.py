"""Predictors that an operator puts in force while the engine serves."""

from __future__ import annotations

from engines import engine, request

from pdmuxd.engine.core.latency import DecodeCoefficients
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.link.predictors import Predictors, SoloRun


def predictors(profile_id: int, decode_s: float, *, guard: float = 1.1) -> Predictors:
    """Decode takes `decode_s` on any number of SMs, whatever the batch."""
    law = DecodeCoefficients(per_reused_s=0.0, per_request_s=0.0, fixed_s=decode_s)
    return Predictors(
        profile_id=profile_id,
        profile="p",
        provenance="measured: by hand",
        solo_run=tuple(SoloRun(sms=sms, decode=law) for sms in (20, 36, 52, 68, 84, 100, 132)),
        guard_default_ratio=guard,
    )


def serving() -> EmulatedEngine:
    running = engine("muxwise", step_records=True)
    for number in range(8):
        running.submit(request(f"d{number}", 500, 2000), 0.0)
    running.advance(2.0)
    return running


def apply(running: EmulatedEngine, version: int, given: Predictors | None, **others: object) -> None:
    running.apply_settings(version=version, policy="muxwise", slos={}, predictors=given, **others)


def colocated_steps(running: EmulatedEngine, name: str) -> list[IterationRecord]:
    now_s = running.now_s
    running.drain_records()
    running.submit(request(name, 8000, 1), now_s)
    running.advance(now_s + 0.5)
    return [one for one in running.drain_records() if one.predicted_decode_s is not None]


def test_the_next_decision_believes_them_when_predictors_are_put_in_force() -> None:
    running = serving()
    apply(running, 1, predictors(7, 0.017))
    steps = colocated_steps(running, "p")
    assert {step.predicted_decode_s for step in steps} == {0.017}
    assert running.profile_id == 7
    apply(running, 2, None)
    steps = colocated_steps(running, "q")
    assert 0.017 not in {step.predicted_decode_s for step in steps}
    assert running.profile_id == 0


def test_what_the_guard_learned_stays_when_the_same_profile_comes_again() -> None:
    running = serving()
    apply(running, 1, predictors(7, 0.004))
    assert max(step.guard_ratio or 0.0 for step in colocated_steps(running, "p")) > 1.2
    apply(running, 2, predictors(7, 0.004))
    assert colocated_steps(running, "q")[0].guard_ratio != 1.1
    apply(running, 3, predictors(7, 0.0041))
    assert colocated_steps(running, "r")[0].guard_ratio != 1.1, "the same profile, refined"
    apply(running, 4, predictors(8, 0.004, guard=1.05))
    assert colocated_steps(running, "s")[0].guard_ratio == 1.05, "another profile"
