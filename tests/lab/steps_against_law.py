"""What steps took while serving, beside what a profile says of them: `steps-against-law STEPS PROFILE`.

STEPS is what `late-behind --steps` wrote, gzipped or not; PROFILE an exported profile of the same GPU and
model. By kind of step, tokens and requests that decode: medians and the least tenth of the difference, in
milliseconds; what the host was late for is in the median. Prompts are taken to have the load's mean length,
since a decision's record says how many tokens there were and not of how many prompts. Last, what explains the
difference of fused steps best, by least squares: a share of the law, and so many microseconds for each
request that decodes; steps further than 6 ms from the median difference, which stalled, are left out.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections import defaultdict
from pathlib import Path

import numpy as np
from late_behind import LOADS
from rich.console import Console
from rich.table import Table
from ship_profile import emulator_profile, read_file, refitted

from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.profiling.regression import Floats

LONGEST_APART_MS = 6.0
FEWEST = 60
"""Steps of a row."""


def explain(fused: Floats) -> None:
    """Print the fit; of each step milliseconds measured, those of the law, and who decodes: [steps, 3]."""
    apart = fused[:, 0] - fused[:, 1]
    kept = np.abs(apart - np.median(apart)) < LONGEST_APART_MS
    known, apart = fused[kept, 1:], apart[kept]
    (share, request_ms), *_ = np.linalg.lstsq(known, apart, rcond=None)
    left = np.median(np.abs(apart - known @ (share, request_ms)))
    print(
        f"{len(apart):,} of {len(fused):,} fused steps: {1 + share:.3f} of the law and "
        f"{1e3 * request_ms:.1f} us for each request that decodes; median residual {left:.2f} ms"
    )


def main() -> None:
    """Read, group, print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", type=Path)
    parser.add_argument("profile", type=Path)
    options = parser.parse_args()
    profile = emulator_profile(refitted(read_file(options.profile)))
    latency, sms = profile.context().latency, profile.device.total_sms
    data = options.steps.read_bytes()
    text = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    rows = defaultdict[tuple[str, int, int], list[tuple[float, float]]](list)
    fused: list[tuple[float, float, int]] = []
    for line in text.splitlines():
        step = json.loads(line)
        decode = DecodeShape(bs=step["decode_bs"], reused_tokens=step["decode_reused_tokens"])
        new = step["prefill_new_tokens"]
        if step["mode"] == "decode" and decode.bs:
            key, law_s = ("decode", 0, decode.bs // 16 * 16), latency.decode_s(decode, sms)
        elif step["mode"] == "fused" and new:
            mean_tokens = LOADS[step.get("cell", "chat").split()[0]][1]
            prompts = max(1, new // mean_tokens)
            prefill = PrefillShape.of([(max(1, new // prompts), 0)] * prompts)
            key = ("fused", (new + decode.bs) // 128 * 128, decode.bs // 32 * 32)
            law_s = latency.fused_s(prefill, decode, sms)
            fused.append((step["measured_ms"], 1e3 * law_s, decode.bs))
        else:
            continue
        rows[key].append((step["measured_ms"], 1e3 * law_s))
    explain(np.array(fused))
    table = Table(title="medians, ms")
    columns = ("step", "tokens from", "of them decode, from", "steps", "measured", "law", "difference")
    for column in (*columns, "its p10"):
        table.add_column(column)
    for key, steps in sorted(rows.items()):
        if len(steps) >= FEWEST:
            measured, law = (statistics.median(column) for column in zip(*steps, strict=True))
            apart = [took - said for took, said in steps]
            least = statistics.quantiles(apart, n=10)[0]
            told = (measured, law, statistics.median(apart), least)
            table.add_row(*map(str, key), str(len(steps)), *(f"{ms:.1f}" for ms in told))
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
