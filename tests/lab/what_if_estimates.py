"""Whether what-if decides as the engine does: `python tests/lab what-if-estimates`.

Emulated engine, virtual time, a device that differs from its profile. Every fourth decision of `auto` about a
prefill is made again: with nothing learned of steps, with what the daemon has learned from the records of all
before it, and with what it learns if this is the first that it is asked, from the newest alone. The guard and
the trust in predictions are the engine's in all; how often the daemon knows that trust is told beside.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from time import process_time

from device_noise import noise_of
from served import SERVED, arrivals, cell, device

from pdmuxd.controlplane.telemetry.decisions import Decisions
from pdmuxd.controlplane.telemetry.learned_steps import LearnedSteps
from pdmuxd.engine.core.estimates.steps import StepEstimates
from pdmuxd.engine.core.policies.auto import AutoPolicy
from pdmuxd.engine.core.policies.autostate import AutoState
from pdmuxd.engine.core.types import Decision, Observation
from pdmuxd.engine.emulator.info import EmulatedReporter

LOADS = (
    ("held-chat", 120.0, 8.0),
    ("held-summaries", 9.0, 20.0),
    ("held-documents", 2.5, 30.0),
)
NOISES = ("0,0,0", "8,6,0.3", "20,10,0.3", "80,10,3")
"""The last is a device that its profile is not of: predictions are found wrong."""


EVERY = 4


@dataclass
class Counts:
    """Of one run."""

    told: Decisions = field(default_factory=Decisions)
    decisions: int = 0
    asked: int = 0
    alike_untaught: int = 0
    alike_told: int = 0
    alike_first: int = 0
    trust_known: int = 0
    asking_s: float = 0.0


def _key(made: Decision) -> tuple[object, ...]:
    return made.mode, made.partition_id, made.prefill_layers, made.token_budget


@contextmanager
def telling(counts: Counts) -> Iterator[None]:
    """Keep each record that the daemon would be told of."""
    init, keep = EmulatedReporter.__init__, EmulatedReporter._keep

    def with_records(self: EmulatedReporter, *args: object, **_: object) -> None:
        init(self, *args, keeps_records=True)

    try:
        EmulatedReporter.__init__ = with_records
        EmulatedReporter._keep = lambda _, record: counts.told.add(record, record.now_s)
        yield
    finally:
        EmulatedReporter.__init__, EmulatedReporter._keep = init, keep


@contextmanager
def deciding_again(counts: Counts) -> Iterator[None]:
    """Count the decisions of `auto` that come out alike."""
    decide, learned = AutoPolicy.decide, LearnedSteps(counts.told)

    def again(self: AutoPolicy, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        made, after = decide(self, obs, state)
        if not made.token_budget and not made.prefill_layers:
            return made, after
        counts.decisions += 1
        if counts.decisions % EVERY:
            return made, after
        own, begun_s = state.estimates, process_time()
        told = learned.estimates(self.context)
        counts.asking_s += process_time() - begun_s

        def is_alike(estimates: StepEstimates) -> bool:
            trusted = replace(estimates, guard=own.guard, breaker=own.breaker)
            return _key(decide(self, obs, replace(state, estimates=trusted))[0]) == _key(made)

        counts.asked += 1
        counts.alike_untaught += is_alike(StepEstimates(guard=own.guard))
        counts.alike_told += is_alike(told)
        first = LearnedSteps(counts.told).estimates(self.context)
        counts.alike_first += is_alike(first)
        counts.trust_known += first.breaker.is_open == own.breaker.is_open
        return made, after

    try:
        AutoPolicy.decide = again
        yield
    finally:
        AutoPolicy.decide = decide


def main() -> None:
    """Print a row for each load and noise."""
    argparse.ArgumentParser(description=__doc__, allow_abbrev=False).parse_args()
    print(
        "| load | noise | decisions | alike, nothing learned | alike, told | of the newest | trust known |"
        " us of CPU a question |"
    )
    for kind, rate_per_s, duration_s in LOADS:
        for noise in NOISES:
            counts = Counts()
            with telling(counts), deciding_again(counts):
                noisy = replace(noise_of(noise), seed=1)
                cell("auto", arrivals(kind, rate_per_s, duration_s, 1), device(SERVED), noisy, 0.05)
            alike = counts.alike_untaught, counts.alike_told, counts.alike_first, counts.trust_known
            shares = [share / counts.asked for share in alike]
            print(f"| {kind} | {noise} | {counts.asked} |", *(f"{share:.1%} |" for share in shares), end="")
            print(f" {1e6 * counts.asking_s / counts.asked:.0f} |", flush=True)


if __name__ == "__main__":
    main()
