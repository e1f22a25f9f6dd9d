"""What steps took, from the records of `run --records FOLDER`:

    python tests/lab steps FOLDER/*.jsonl.gz

One table per file: steps by mode, reason and SMs, what they took and were predicted to take. With
`--over-ms`, how many steps with decode took longer than that, and how many tokens waited for them: what is
late at the client and not here was late on the way. Then: how many steps the host delayed, how many stalled,
and what steps with prompt tokens use of the TBT target.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gpu_servers.options import new_parser, numbers
from pdmuxd.daemon.bench.load.score import quantile
from pdmuxd.daemon.bench.servers.link import host_delays
from pdmuxd.engine.link.messages import HOST_DELAY_S

_HEAD = (
    "| mode, reason, SMs of prefill and decode | steps | took p50, p99 ms | over predicted p10, p50, p90 "
    "| decode from its own start over predicted p50, p90, p99 |"
)


def read_steps(path: Path) -> list[dict[str, Any]]:
    """The steps in a file of records. Raises: ValueError for a file of something else."""
    with gzip.open(path, "rt") as file:
        records = [json.loads(line) for line in file]
    return [record for record in records if record["type"] == "iteration" and record["measured_step_s"]]


def lines(steps: Sequence[dict[str, Any]], limits_ms: Sequence[float]) -> list[str]:
    """The table of one file."""
    by_kind: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for step in steps:
        kind = f"{step['mode']}, {step['reason']}, {step['prefill_sms']},{step['decode_sms']}"
        by_kind[kind].append(step)
    rows = [_HEAD, "|---|---:|---:|---:|---:|"]
    rows += [_row(kind, of) for kind, of in sorted(by_kind.items(), key=lambda one: -len(one[1]))]
    decoding = [step for step in steps if step["decode_bs"]]
    for over_ms in limits_ms:
        late = [step for step in decoding if step["measured_step_s"] * 1e3 > over_ms]
        tokens = sum(step["decode_bs"] for step in late)
        rows.append(f"{len(late)} of {len(decoding)} steps over {over_ms:g} ms, with {tokens} tokens")
    return [*rows, *_of_host(steps), *_stalled(decoding), *_use(decoding)]


def _of_host(steps: Sequence[dict[str, Any]]) -> list[str]:
    """What the device waited for the host, of the steps that were launched behind another."""
    followed = [(s["host_late_s"], s["measured_step_s"]) for s in steps if s.get("host_late_s") is not None]
    if not followed:
        return []
    host = host_delays(followed)
    return [
        f"{100 * host['delayed_ratio']:.2f}% of {host['steps']} steps were delayed by the host (more than "
        f"{1e3 * HOST_DELAY_S:g} ms; p99 {host['p99_ms']:.2f} ms), which took "
        f"{100 * host['time_ratio']:.2f}% of their time; at most 1% of steps is aimed at"
    ]


def _stalled(decoding: Sequence[dict[str, Any]]) -> list[str]:
    excess_s = [step["stall_s"] for step in decoding if step.get("stall_s")]
    if not excess_s:
        return []
    most_ms = 1e3 * max(excess_s)
    return [f"{len(excess_s)} of {len(decoding)} steps with decode stalled, by {most_ms:.0f} ms at most"]


def _use(decoding: Sequence[dict[str, Any]]) -> list[str]:
    use = [
        step["measured_step_s"] / step["tbt_target_s"]
        for step in decoding
        if step.get("tbt_target_s") and step["prefill_new_tokens"]
    ]
    if not use:
        return []
    p50, p99 = (f"{100 * quantile(use, q):.0f}%" for q in (0.5, 0.99))
    return [f"steps with prompt tokens in or beside them take {p50} of the TBT target (p50), {p99} (p99)"]


def _row(kind: str, steps: Sequence[dict[str, Any]]) -> str:
    took_ms = [step["measured_step_s"] * 1e3 for step in steps]
    predicted = ((step, step["predicted_fused_s"] or step["predicted_decode_s"]) for step in steps)
    ratios = [step["measured_step_s"] / seconds for step, seconds in predicted if seconds]
    own = [
        step["measured_decode_s"] / step["predicted_decode_s"]
        for step in steps
        if step.get("measured_decode_s") and step["predicted_decode_s"]
    ]
    took = f"{quantile(took_ms, 0.5):.1f}, {quantile(took_ms, 0.99):.1f}"
    over, alone = _quantiles(ratios, 0.1, 0.5, 0.9), _quantiles(own, 0.5, 0.9, 0.99)
    return f"| {kind} | {len(steps)} | {took} | {over} | {alone} |"


def _quantiles(ratios: Sequence[float], *wanted: float) -> str:
    return ", ".join(f"{quantile(ratios, q):.2f}" for q in wanted) if ratios else "-"


def main(argv: list[str] | None = None) -> int:
    """Print; exit code 2 for a file that holds no records."""
    parser = new_parser("steps", __doc__)
    parser.add_argument("records", type=Path, nargs="+")
    parser.add_argument("--over-ms", type=numbers, default=[], help="targets, less the way to the client")
    options = parser.parse_args(argv)
    for path in options.records:
        try:
            steps = read_steps(path)
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"{path}: no records of steps: {error}", file=sys.stderr)
            return 2
        print(f"{path.name}\n" + "\n".join(lines(steps, options.over_ms)))
    return 0
