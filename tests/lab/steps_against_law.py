"""What steps took while serving, beside what a profile says of them: `steps-against-law STEPS PROFILE`.

STEPS is what `late-behind --steps` wrote, gzipped or not; PROFILE an exported profile of the same GPU and
model. By kind of step, tokens and requests that decode: medians and the least tenth of the difference, in
milliseconds; what the host was late for is in the median. Prompts are taken to have the load's mean length,
since a decision's record says how many tokens there were and not of how many prompts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import statistics
from collections import defaultdict
from pathlib import Path

from rich.console import Console
from rich.table import Table
from ship_profile import emulator_profile, read_file, refitted

from pdmuxd.engine.core.types import DecodeShape, PrefillShape

PROMPT_TOKENS = 200
"""Of `late-behind`'s short chats."""
FEWEST = 60
"""Steps of a row."""


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
    for line in text.splitlines():
        step = json.loads(line)
        decode = DecodeShape(bs=step["decode_bs"], reused_tokens=step["decode_reused_tokens"])
        new = step["prefill_new_tokens"]
        if step["mode"] == "decode" and decode.bs:
            key, law_s = ("decode", 0, decode.bs // 16 * 16), latency.decode_s(decode, sms)
        elif step["mode"] == "fused" and new:
            prompts = max(1, new // PROMPT_TOKENS)
            prefill = PrefillShape.of([(max(1, new // prompts), 0)] * prompts)
            key = ("fused", (new + decode.bs) // 128 * 128, decode.bs // 32 * 32)
            law_s = latency.fused_s(prefill, decode, sms)
        else:
            continue
        rows[key].append((step["measured_ms"], 1e3 * law_s))
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
