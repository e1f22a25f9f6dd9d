"""Arrivals that were recorded on a coarse clock, and how to spread them out again.

A trace whose arrivals sit on, say, 3-second ticks replays as a burst every 3 seconds that no client
ever sent. Spreading places each tick's arrivals uniformly, in file order, over the tick.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MIN_TICK_S = 0.5
MAX_TICK_S = 60.0
JITTER_S = 0.010
"""How far a recorded arrival may sit from its tick: published files round to 1 or 2 ms of it."""
MIN_TICKS = 3
MIN_ARRIVALS_PER_TICK = 2.0

Seconds = NDArray[np.float64]


def detect_tick_s(arrival_s: Seconds) -> float:
    """The coarse tick that all arrivals sit on, in seconds; 0.0 if there is none.

    There is one if the arrivals stand at few instants (MIN_ARRIVALS_PER_TICK each on average), all
    within JITTER_S of multiples of one step of MIN_TICK_S to MAX_TICK_S.
    """
    if len(arrival_s) == 0:
        return 0.0
    ordered = np.sort(arrival_s - arrival_s.min())
    gaps = np.diff(ordered)
    steps = gaps[gaps > JITTER_S]
    ticks = len(steps) + 1
    if ticks < MIN_TICKS or len(ordered) < MIN_ARRIVALS_PER_TICK * ticks:
        return 0.0
    # The commonest step, to the jitter; skipped ticks are multiples of it.
    tick_s = float(np.round(np.median(steps) / JITTER_S) * JITTER_S)
    if not MIN_TICK_S <= tick_s <= MAX_TICK_S:
        return 0.0
    off = np.abs(ordered - np.round(ordered / tick_s) * tick_s)
    return tick_s if bool(np.all(off <= JITTER_S)) else 0.0


def spread_ticks(arrival_s: Seconds, tick_s: float, seed: int) -> Seconds:
    """Sorted arrivals in, sorted arrivals out: each tick's are uniform over the tick.

    The same seed gives the same arrivals.
    """
    rng = np.random.default_rng(seed)
    start_s = float(arrival_s[0])
    tick = np.floor((arrival_s - start_s + JITTER_S) / tick_s)
    offset = rng.random(len(arrival_s)) * tick_s
    return np.sort(start_s + tick * tick_s + offset)
