"""Invariant 6 across processes: nothing that is decided may depend on the order of a set."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

OVERLOAD = """
import random
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.loop.requests import Target

engine, dice = EmulatedEngine(profile=load_profile("h200-llama-8b"), policy={policy!r}), random.Random(3)
requests = []
def slo(tbt_s):
    return Slo(ttft_fixed_s=1.0, ttft_per_1k_new_tokens_s=1.0, tbt_s=tbt_s, attainment_ratio=0.99)

tbts_s = {{"t": 0.006, "u": 0.2, "v": 0.1}}
targets = {{name: Target(slo=slo(tbt_s), version=1) for name, tbt_s in tbts_s.items()}}
engine.apply_settings(version=1, policy={policy!r}, slos=targets)
for i in range(150):
    keys = tuple(range(dice.randrange(3) * 1000, dice.randrange(3) * 1000 + 400))
    requests.append(EmulatedRequest(
        request_id=f"r{{i}}", tenant="tuv"[i % 3], arrival_s=i * 0.02, input_tokens=dice.randrange(200, 9000),
        output_tokens=dice.randrange(1, 80), block_keys=keys))
for request in requests:
    engine.submit(request, request.arrival_s)
while (at_s := engine.next_event_s()) < float("inf"):
    engine.advance(at_s)
print([(r.request_id, r.first_token_s, r.end_s) for r in requests])
"""


@pytest.mark.parametrize("policy", ["auto", "muxwise:preempt"])
def test_the_same_happens_in_another_process_when_its_hashes_differ(policy: str) -> None:
    def run(hash_seed: str) -> str:
        return subprocess.run(
            [sys.executable, "-c", OVERLOAD.format(policy=policy)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    first = run("1")
    assert len(first) > 1000
    assert run("2") == first
