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
from served import SERVED_H100, device

from pdmuxd.daemon.replay.collect import Collector
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.noise import DeviceNoise
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.loop.requests import Target

SLOW_S, FINE_S = 60.0, 30.0
RATES = (60.0, 150.0)
"""Arrivals/s in each."""
TBT_S = 0.05


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


def short_chat() -> list[EmulatedRequest]:
    source, found, at_s = random.Random(11), [], 0.0
    while at_s < SLOW_S + FINE_S:
        at_s += source.expovariate(RATES[at_s >= SLOW_S])
        found.append(
            EmulatedRequest(
                request_id=str(len(found)),
                tenant="a",
                arrival_s=at_s,
                input_tokens=max(2, round(source.lognormvariate(5.1, 0.6))),
                output_tokens=max(2, round(source.lognormvariate(3.6, 0.6))),
            )
        )
    return found


@pytest.mark.slow
def test_fused_steps_are_tried_again_after_a_slow_host():
    is_slow = True
    arrivals = short_chat()
    collector = Collector(arrivals, TBT_S)
    noise = SlowAtFirst(is_slow=lambda: is_slow)
    profile = replace(device(SERVED_H100), noise=noise)
    engine = EmulatedEngine(profile=profile, policy="auto", observer=collector)
    slo = replace(DEFAULT_SLO, ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=TBT_S)
    engine.apply_settings(version=1, policy="auto", slos={"a": Target(slo=slo, version=1)})
    collector.attach(engine.token_times)
    for request in arrivals:
        is_slow = request.arrival_s < SLOW_S
        engine.advance(request.arrival_s)
        engine.submit(request, request.arrival_s)
    while (next_s := engine.next_event_s()) < float("inf"):
        engine.advance(next_s)
    seen = collector.outcomes()
    good = (seen.ttft_s <= 1.0 + seen.input_tokens / 1000.0) & seen.finished & (seen.gap_p99_s <= TBT_S)
    recovered = np.array([request.arrival_s >= SLOW_S + 10.0 for request in arrivals])
    assert good[~recovered].mean() > 0.9
    assert good[recovered].mean() > 0.99
