"""Small replays for tests: plans, and results of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from engines import PROFILE

from pdmuxd.daemon.replay.document import ReplayDocument, build_document
from pdmuxd.daemon.replay.run import PolicyReplay, ReplayPlan, replay_policy
from pdmuxd.daemon.replay.shape import Shaping
from pdmuxd.daemon.replay.trace import Trace, TraceFormat, TraceRequest
from pdmuxd.engine.core.slo import DEFAULT_SLO

SHAPING = Shaping()


def plan(
    requests: int = 40,
    *,
    seed: int = 3,
    tenants: Sequence[str] = ("default",),
    name: str = "trace.jsonl",
    kv_capacity_tokens: int | None = None,
    max_output_tokens: int = 30,
) -> ReplayPlan:
    """Poisson arrivals at 8 a second; half of the prompts share their first block."""
    rng = random.Random(seed)
    built, now_s = [], 0.0
    for index in range(requests):
        blocks = rng.randint(1, 4)
        first = 1 if rng.random() < 0.5 else 1000 * index + 2
        built.append(
            TraceRequest(
                line=index + 1,
                arrival_s=now_s,
                tenant=tenants[index % len(tenants)],
                input_tokens=512 * blocks - rng.randint(0, 500),
                output_tokens=rng.randint(1, max_output_tokens),
                prefix_ids=(first, *range(1000 * index + 3, 1000 * index + 2 + blocks)),
                block_tokens=512,
            )
        )
        now_s += rng.expovariate(8.0)
    profile = (
        PROFILE if kv_capacity_tokens is None else replace(PROFILE, kv_capacity_tokens=kv_capacity_tokens)
    )
    trace = Trace(
        path=Path(name), format=TraceFormat.MOONCAKE, requests=tuple(built), block_tokens=512, tick_s=3.0
    )
    return ReplayPlan(trace=trace, profile=profile, slo=DEFAULT_SLO)


def replayed(of: ReplayPlan, *policies: str) -> list[PolicyReplay]:
    return [replay_policy(of, policy, lambda done, now_s: None) for policy in policies]


def document(
    of: ReplayPlan, replays: Sequence[PolicyReplay], command: str = "pdmuxd replay t"
) -> ReplayDocument:
    return build_document(
        of,
        SHAPING,
        replays,
        command=command,
        version="1.2.3",
        created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    )
