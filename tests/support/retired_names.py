"""Names that were given up for the terms of docs/glossary.md; `make lint` fails where one comes back.

python tests/support/retired_names.py
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

RETIRED = {
    "awd": "adaptive_batching",
    "AwdState": "AdaptiveBatchingState",
    "BoundaryFit": "CrossoverFit",
    "BoundarySamples": "CrossoverSamples",
    "FusedSizes": "BatchSizeCorrection",
    "fusedsizes": "batch_size_correction",
    "Overrun": "LatencyMargin",
    "overrun": "latency_margin",
    "Prospect": "Plan",
    "prospects": "plans",
    "past saving": "unreachable deadline",
    "demote": "deprioritize",
    "demoted": "deprioritized",
    "is_demoted": "is_deprioritized",
    "beside_ratio": "colocated_ratio",
    "decode_beside_ratio": "decode_colocated_ratio",
    "decode_beside_sms_ratio": "decode_colocated_sms_ratio",
    "prefill_beside_ratio": "prefill_colocated_ratio",
    "beside_points": "colocated_points",
    "per_longest_s": "per_max_context_s",
    "has_longest": "has_max_context",
    "fit_longest": "fit_max_context",
    "longest_tokens": "max_context_tokens",
    "Belief": "Prior",
    "beliefs": "priors",
    "PredictorInMaking": "PredictorCampaign",
    "is_outdone": "is_dominated",
    "Steering": "PolicyRuntime",
    "steering": "policy_runtime",
    "Cadence": "TokenGapLog",
    "cadence": "token_gap_log",
    "make_facts": "make_engine_info",
    "RequestLives": "RequestHistory",
    "RequestLife": "RequestLifecycle",
    "RequestMiss": "RequestViolation",
    "find_misses": "find_violations",
    "by_group": "by_partition_id",
    "chosen_group": "chosen_partition_id",
    "sitting": "session",
    "sittings": "sessions",
    "held_up": "stall_trace",
}
"""Whole words, in code, comments and documents."""

ALLOWED = (
    "CHANGELOG.md",
    "docs/glossary.md",
    "docs/measurements/*",
    "engine/link/legacy.py",
    "migrations/versions/*",
    "tests/lab/gpu_plans/anchors.py",
    "tests/engine/link/test_legacy.py",
    "tests/support/retired_names.py",
    "tests/test_retired_names.py",
    "tests/tui/screens/*",
)
"""Files that tell of the past, or read what was written then."""

_SUFFIXES = (".py", ".md", ".toml", ".yaml", ".yml", "Makefile")
_WORD = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, RETIRED))})(?!\w)")


def comebacks(root: Path, names: Iterable[str]) -> Iterator[str]:
    """A line for each retired word in these files, as `file:line: what to say instead`."""
    for name in names:
        if not name.endswith(_SUFFIXES) or any(fnmatch(name, pattern) for pattern in ALLOWED):
            continue
        for number, line in enumerate((root / name).read_text(encoding="utf-8").splitlines(), start=1):
            for found in _WORD.finditer(line):
                yield f"{name}:{number}: {found[1]} is retired; say {RETIRED[found[1]]}"


def tracked_files(root: Path) -> list[str]:
    """Those that git knows and that are there."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=root, capture_output=True, text=True, check=True)
    return [name for name in listed.stdout.split("\0") if name and (root / name).is_file()]


if __name__ == "__main__":
    here = Path(__file__).parents[2]
    lines = list(comebacks(here, tracked_files(here)))
    print("\n".join(lines), file=sys.stderr)
    sys.exit(1 if lines else 0)
