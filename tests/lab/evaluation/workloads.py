"""The workloads of the evaluation: recorded traces, and lengths drawn from published ranges."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import numpy as np

from pdmuxd.daemon.compare.plan import DEFAULT_DOUBLINGS, ComparePlan
from pdmuxd.daemon.compare.workload import without_longer
from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.generate import generate
from pdmuxd.daemon.replay.shape import Shaping, shape
from pdmuxd.daemon.replay.trace import Trace, TraceFormat, TraceRequest
from pdmuxd.engine.core.slo import DEFAULT_SLO
from pdmuxd.engine.emulator.profile import load_profile

MOONCAKE_MAX_INPUT = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """What runs are drawn from, and how long they are: rates differ, and 99% needs requests enough."""

    name: str
    title: str
    file: str | None
    """None: the lengths are synthetic."""
    shuffle: bool
    seconds: float
    quick_seconds: float
    kind: str | None = None
    """Of `pdmuxd generate`, drawn from `kind_rps` requests a second for an hour with GENERATED_SEED."""
    kind_rps: float = 0.0


AZURE_CONV = Workload(
    name="azure-conv",
    title="Azure conversation",
    file="AzureLLMInferenceTrace_conv.csv",
    shuffle=True,
    seconds=60,
    quick_seconds=30,
)
AZURE_CODE = Workload(
    name="azure-code",
    title="Azure code",
    file="AzureLLMInferenceTrace_code.csv",
    shuffle=True,
    seconds=60,
    quick_seconds=30,
)
MOONCAKE = Workload(
    name="mooncake",
    title="Mooncake conversation",
    file="mooncake_conversation_trace.jsonl",
    shuffle=False,
    seconds=900,
    quick_seconds=300,
)
SHAREGPT_LIKE = Workload(
    name="sharegpt-like", title="ShareGPT-like", file=None, shuffle=True, seconds=60, quick_seconds=30
)
LONG_DOCUMENTS = Workload(
    name="long-documents", title="long documents", file=None, shuffle=True, seconds=600, quick_seconds=200
)
SHORT_AND_LONG = Workload(
    name="short-and-long", title="short and long", file=None, shuffle=True, seconds=3600, quick_seconds=1200
)

# MuxWise table 1: minimum, mean, maximum of input and output tokens.
_SHAREGPT = ((4, 226, 1024), (4, 195, 1838))
_LOOGLE = ((3380, 30_000, 81_000), (2, 15, 326))
_SPREAD = 0.9
"""Standard deviation of the logarithm: about what chat lengths have."""
_SYNTHETIC = 4000
GENERATED_SEED = 2311
"""Not one of those that anything was tuned or shown with elsewhere (1, 7)."""
GENERATED_S = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where traces lie, and how much to run."""

    traces: Path | None
    """None: only loads that are made up."""
    quick: bool
    jobs: int

    def plan(self, profile: str, workload: Workload, **changes: object) -> ComparePlan:
        """How a workload is run on a profile; `changes` replace fields of the plan."""
        quick = self.quick
        plan = ComparePlan(
            trace=_holdable(load(self.traces, workload), profile),
            profile=load_profile(profile),
            ttft_fixed_s=DEFAULT_SLO.ttft_fixed_s,
            ttft_per_1k_new_tokens_s=DEFAULT_SLO.ttft_per_1k_new_tokens_s,
            attainment_ratio=DEFAULT_SLO.attainment_ratio,
            seconds=workload.quick_seconds if quick else workload.seconds,
            seeds=(0,) if quick else (0, 1, 2),
            shuffle=workload.shuffle,
            resolution=0.04 if quick else 0.015,
            doublings=0 if quick else DEFAULT_DOUBLINGS,
        )
        return replace(plan, **changes)  # type: ignore[arg-type]


@cache
def load(folder: Path | None, workload: Workload) -> Trace:
    """The trace of a workload. Raises: TraceError."""
    if workload.kind is not None:
        return _generated(workload)
    if workload.file is None:
        return _SYNTHESES[workload.name]()
    path = (folder or Path("TRACES")) / workload.file
    if not path.is_file():
        sys.exit(f"error: {path}: no such file; TRACES is the folder that holds the recorded traces")
    found, requests = open_trace(path)
    trace = shape(path, found, requests, Shaping(tick_s=0.0))
    return without_longer(trace, MOONCAKE_MAX_INPUT)[0] if workload is MOONCAKE else trace


def _generated(workload: Workload) -> Trace:
    """An hour of it: no run comes to its end and begins again, which would find its own prefixes."""
    assert workload.kind is not None
    rate_per_s = workload.kind_rps
    rows = generate(workload.kind, rate_per_s=rate_per_s, duration_s=GENERATED_S, seed=GENERATED_SEED)
    return Trace(
        path=Path(f"generated-{workload.kind}"),
        format=TraceFormat.NATIVE,
        requests=tuple(rows),
        block_tokens=max(row.block_tokens for row in rows),
    )


def _holdable(trace: Trace, profile: str) -> Trace:
    """Without what the KV pool could never hold."""
    pool = load_profile(profile).kv_capacity_tokens
    return replace(
        trace, requests=tuple(r for r in trace.requests if r.input_tokens + r.output_tokens <= pool)
    )


def _synthetic(*kinds: tuple[tuple[int, int, int], tuple[int, int, int]]) -> Trace:
    """Requests of these kinds in turn, with clipped log-normal lengths."""
    rng = np.random.default_rng(20)
    columns = [[_lengths(rng, *limits) for limits in kind] for kind in kinds]
    requests = [
        TraceRequest(
            line=i + 1,
            arrival_s=0.0,
            tenant="default",
            input_tokens=int(columns[i % len(kinds)][0][i]),
            output_tokens=int(columns[i % len(kinds)][1][i]),
        )
        for i in range(_SYNTHETIC)
    ]
    return Trace(path=Path("synthetic"), format=TraceFormat.NATIVE, requests=tuple(requests))


def _lengths(rng: np.random.Generator, low: int, mean: int, high: int) -> np.ndarray:
    """Clipped at both ends, then scaled until the mean is right."""
    normal = rng.standard_normal(_SYNTHETIC)
    centre = math.log(mean)
    for _ in range(20):
        lengths = np.clip(np.exp(centre + _SPREAD * normal), low, high)
        centre += math.log(mean / lengths.mean())
    return np.rint(lengths).astype(np.int64)


_SYNTHESES = {
    "sharegpt-like": lambda: _synthetic(_SHAREGPT),
    "long-documents": lambda: _synthetic(_LOOGLE),
    "short-and-long": lambda: _synthetic(_SHAREGPT, _LOOGLE),
}
