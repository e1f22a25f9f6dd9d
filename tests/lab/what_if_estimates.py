"""Whether what-if decides as the engine does: `python tests/lab what-if-estimates`.

Emulated engine, virtual time, a device that differs from its profile. Each decision of `auto` about a
prefill is made again, with nothing learned of fused steps, and with what the decisions before it have told.
"""

from __future__ import annotations

import argparse
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from device_noise import noise_of
from served import SERVED, arrivals, cell, device

from pdmuxd.controlplane.outlook.what_if import LOOKED_AT, planned_with
from pdmuxd.engine.core.estimates.steps import FusedEstimate
from pdmuxd.engine.core.policies.auto import AutoPolicy
from pdmuxd.engine.core.policies.autostate import AutoState
from pdmuxd.engine.core.types import Decision, Observation

LOADS = (
    ("held-chat", 120.0, 8.0),
    ("held-summaries", 9.0, 20.0),
    ("held-documents", 2.5, 30.0),
)
NOISES = ("0,0,0", "8,6,0.3", "20,10,0.3")


@dataclass
class Counts:
    """Of one run."""

    decisions: int = 0
    alike_untaught: int = 0
    alike_told: int = 0
    told: deque[tuple[float | None, float | None]] = field(default_factory=lambda: deque(maxlen=LOOKED_AT))


def _key(made: Decision) -> tuple[object, ...]:
    return made.mode, made.partition_id, made.prefill_layers, made.token_budget


@contextmanager
def deciding_again(counts: Counts) -> Iterator[None]:
    """Count the decisions of `auto` that come out alike."""
    decide = AutoPolicy.decide

    def again(self: AutoPolicy, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        made, after = decide(self, obs, state)

        def is_alike(fused: FusedEstimate) -> bool:
            other = replace(state, estimates=replace(state.estimates, fused=fused))
            return _key(decide(self, obs, other)[0]) == _key(made)

        if made.token_budget or made.prefill_layers:
            counts.decisions += 1
            counts.alike_untaught += is_alike(FusedEstimate())
            counts.alike_told += is_alike(planned_with(counts.told))
        counts.told.append((made.numbers.margin_ratio, made.numbers.stall_room_s))
        return made, after

    try:
        AutoPolicy.decide = again
        yield
    finally:
        AutoPolicy.decide = decide


def main() -> None:
    """Print a row for each load and noise."""
    argparse.ArgumentParser(description=__doc__, allow_abbrev=False).parse_args()
    print("| load | noise | decisions | alike, nothing learned | alike, told |")
    for kind, rate_per_s, duration_s in LOADS:
        for noise in NOISES:
            counts = Counts()
            with deciding_again(counts):
                noisy = replace(noise_of(noise), seed=1)
                cell("auto", arrivals(kind, rate_per_s, duration_s, 1), device(SERVED), noisy, 0.05)
            shares = [share / counts.decisions for share in (counts.alike_untaught, counts.alike_told)]
            print(f"| {kind} | {noise} | {counts.decisions} |", *(f"{share:.1%} |" for share in shares))


if __name__ == "__main__":
    main()
