"""Small comparisons for tests."""

from __future__ import annotations

from datetime import UTC, datetime

from replays import plan as replay_plan

from pdmuxd.daemon.compare.document import Origin, build_document
from pdmuxd.daemon.compare.plan import ComparePlan
from pdmuxd.daemon.compare.schema import CompareDocument
from pdmuxd.daemon.compare.stages import Comparison
from pdmuxd.engine.core.slo import DEFAULT_SLO


def plan(
    *,
    seconds: float = 1.5,
    seeds: tuple[int, ...] = (0, 1),
    resolution: float = 0.2,
    attainment: float = 0.95,
    ttft_fixed_s: float = 0.1,
    name: str = "trace.jsonl",
) -> ComparePlan:
    """Short prompts on the 8B profile, and a tight TTFT target so that small runs saturate."""
    of = replay_plan(60, name=name)
    return ComparePlan(
        trace=of.trace,
        profile=of.profile,
        ttft_fixed_s=ttft_fixed_s,
        ttft_per_1k_new_tokens_s=DEFAULT_SLO.ttft_per_1k_new_tokens_s / 20.0,
        attainment_ratio=attainment,
        seconds=seconds,
        seeds=seeds,
        shuffle=True,
        resolution=resolution,
    )


def document(
    of: ComparePlan, comparison: Comparison, command: str = "pdmuxd compare t", rates: tuple[float, ...] = ()
) -> CompareDocument:
    return build_document(
        of,
        comparison,
        Origin(
            command=command,
            version="1.2.3",
            created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
            rates_rps=rates,
        ),
    )
