"""A short form of tests/lab/chaos.py: each fault once, under load."""

import asyncio
import math

from chaos import chaos
from chaos_faults.faults import FAULTS

EVERY_S = 5.0
PATIENCE_S = 300.0
"""How soon is measured by the script; here only that requests are served again."""


def test_what_must_hold_holds_when_each_fault_comes_once(folder):
    report = asyncio.run(
        chaos(
            folder,
            seconds=math.inf,
            every_s=EVERY_S,
            seed=3,
            rate_per_s=2.0,
            most_faults=len(FAULTS),
            served_again_s=PATIENCE_S,
            deadline_s=PATIENCE_S,
        )
    )
    assert report["violations"] == []
    assert report["outcomes"]["complete"] > 0
    assert report["faults"] == dict.fromkeys(FAULTS, 1)
