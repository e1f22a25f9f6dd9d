from __future__ import annotations

import pytest
from engines import PROFILE, Memory, request, run_until_idle

from pdmuxd.engine.emulator import steplog
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.requests import EmulatedRequest


class Times(Memory):
    """Takes a request's token times when it ends, as the server does."""

    engine: EmulatedEngine

    def on_end(self, request: EmulatedRequest, now_s: float) -> None:
        self.steps.clear()
        self.ended.append((request.request_id, str(len(self.engine.token_times(request))), now_s))


def test_memory_is_bounded_and_times_are_whole_when_the_log_is_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(steplog, "MAX_STEPS", 50)
    times = Times()
    times.engine = EmulatedEngine(profile=PROFILE, policy="muxwise", observer=times, keep_step_log=False)
    for i in range(20):
        times.engine.submit(request(f"r{i}", 10, 60, arrival_s=i * 1.0), i * 1.0)
    run_until_idle(times.engine)
    assert [count for _, count, _ in times.ended] == ["60"] * 20


def test_steps_before_the_first_needed_are_forgotten_when_trimmed() -> None:
    log = steplog.StepLog(keep_all=False)
    for i in range(10):
        log.append(float(i))
    log.trim(4)
    assert list(log.between(4, 7)) == [4.0, 5.0, 6.0]
    log.trim(10)
    assert list(log.between(10, 10)) == []
