"""Whether a change leaves every decision as it was: `python tests/lab decision-hashes` before and after it.

Emulated engine, virtual time, shipped profiles: one hash over all decisions of each run, without their
numbers.
"""

from __future__ import annotations

import argparse
import hashlib
from dataclasses import fields, replace

from device_noise import noise_of
from served import arrivals, cell, device

from pdmuxd.engine.core.policies.auto import AutoPolicy
from pdmuxd.engine.core.policies.autostate import AutoState
from pdmuxd.engine.core.types import Decision, Observation

RUNS = (
    ("held-chat", 120.0, 6.0, "h200-llama-8b-measured", 0.05),
    ("held-summaries", 9.0, 15.0, "h200-llama-8b-measured", 0.05),
    ("held-documents", 2.5, 30.0, "h200-llama-8b-measured", 0.05),
    ("held-tools", 1.5, 30.0, "h200-llama-8b-measured", 0.02),
    ("held-reasoning", 6.0, 10.0, "h200-llama-8b-measured", 0.05),
    ("held-summaries", 1.5, 30.0, "h200-codellama-34b-measured", 0.1),
)
"""Load, requests a second, seconds, profile, TBT target."""
NOISES = ("0,0,0", "8,6,0.3", "80,10,3")
"""The last is a device that its profile is not of."""
NAMES = [field.name for field in fields(Decision) if field.name != "numbers"]


def main() -> None:
    """Print a row for each run and noise."""
    argparse.ArgumentParser(description=__doc__, allow_abbrev=False).parse_args()
    decide = AutoPolicy.decide
    made: list[tuple[object, ...]] = []

    def kept(self: AutoPolicy, obs: Observation, state: AutoState) -> tuple[Decision, AutoState]:
        decision, after = decide(self, obs, state)
        made.append((obs.now_s, *(getattr(decision, name) for name in NAMES)))
        return decision, after

    AutoPolicy.decide = kept
    for kind, rate_per_s, duration_s, profile, tbt_s in RUNS:
        for noise in NOISES:
            made.clear()
            noisy = replace(noise_of(noise), seed=1)
            cell("auto", arrivals(kind, rate_per_s, duration_s, 1), device(profile), noisy, tbt_s)
            digest = hashlib.sha256(repr(made).encode()).hexdigest()[:32]
            print(kind, profile, noise, len(made), digest, flush=True)


if __name__ == "__main__":
    main()
