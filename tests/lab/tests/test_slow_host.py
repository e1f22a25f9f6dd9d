"""A host that was slow for a minute does not decide how `auto` serves from then on.

Seen on an H100: after a minute in which two cores were all that pdmuxd had, `auto` stayed in splits at a rate
that fused steps hold, and a third of all requests were refused. What fused steps scatter had been learned
meanwhile, and was not forgotten, since none ran any more.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from late_behind import drawn
from served import SERVED_H100, device
from tenant_floods import TARGET, run

from pdmuxd.engine.emulator.launches import Launches
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.requests import EmulatedRequest

SLOW_S, FINE_S = 60.0, 30.0
RATES = (60.0, 150.0)
"""Arrivals/s of short chats in each."""


@dataclass(frozen=True, kw_only=True)
class SlowAtFirst(DeviceNoise):
    """Each piece of work takes half as long again, scattered, and a third of them 15 ms more, while `is_slow`
    holds."""

    is_slow: Callable[[], bool]

    def lasting(self) -> Callable[[float], float]:
        source = random.Random(3)

        def lasting(solo_s: float) -> float:
            if not self.is_slow():
                return solo_s
            lasts_s = solo_s * (1.0 + abs(source.gauss(0.0, 0.5)))
            return lasts_s + 0.015 if source.random() < 0.3 else lasts_s

        return lasting


def short_chats() -> list[EmulatedRequest]:
    parts = zip((0.0, SLOW_S), (SLOW_S, FINE_S), RATES, strict=True)
    return [
        EmulatedRequest(
            request_id="",
            tenant="a",
            arrival_s=from_s + answer.due_s,
            input_tokens=answer.prompt,
            output_tokens=answer.tokens,
        )
        for from_s, seconds, rate in parts
        for answer in drawn("chat", seconds, 11, rate)
    ]


@pytest.mark.slow
def test_fused_steps_are_tried_again_after_a_slow_host():
    arrivals, is_slow = short_chats(), True

    def on_next(request: EmulatedRequest) -> None:
        nonlocal is_slow
        is_slow = request.arrival_s < SLOW_S

    # The rates are near what a device with little between its steps holds; this one's host is slow by itself.
    launches = Launches(fused_step_s=0.0006)
    quick = replace(device(SERVED_H100), fused_serving_ratio=1.0, launches=launches)
    profile = replace(quick, noise=SlowAtFirst(is_slow=lambda: is_slow))
    _, good = run("auto", arrivals, {"a": TARGET}, profile, on_next)
    recovered = np.array([request.arrival_s >= SLOW_S + 10.0 for request in arrivals])
    assert good[~recovered].mean() > 0.9
    assert good[recovered].mean() > 0.99
