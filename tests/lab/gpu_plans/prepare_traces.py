"""Cut recorded traces down to the lengths that `run` needs: one JSON file of less than a megabyte.

    python tests/lab prepare-traces FOLDER OUT.json

FOLDER holds the Azure 2023 traces and Mooncake's conversation trace under their published names. OUT.json
goes where git does not look, such as `.gpu/traces.json`: the traces are not part of this repository.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path

from gpu_servers.options import new_parser

_AZURE = {"conv": "AzureLLMInferenceTrace_conv.csv", "code": "AzureLLMInferenceTrace_code.csv"}
_MOONCAKE = "mooncake_conversation_trace.jsonl"
AZURE_REQUESTS = 8_000
MOONCAKE_REQUESTS = 1_500
MAX_INPUT_TOKENS = 60_000
"""Longer prompts are left out: a single one would fill a run of half a minute."""


def azure(path: Path) -> list[list[int]]:
    """[input tokens, output tokens] in the order of the trace."""
    with path.open(newline="") as file:
        rows = [
            [int(row["ContextTokens"]), int(row["GeneratedTokens"])]
            for row, _ in zip(csv.DictReader(file), range(AZURE_REQUESTS), strict=False)
        ]
    return [row for row in rows if min(row) > 0 and row[0] <= MAX_INPUT_TOKENS]


def mooncake(path: Path) -> list[list[object]]:
    """[input tokens, output tokens, block ids]; ids are numbered anew, to be short."""
    numbers: dict[int, int] = {}
    rows: list[list[object]] = []
    with path.open() as file:
        for line in file:
            entry = json.loads(line)
            if entry["input_length"] > MAX_INPUT_TOKENS or not entry["output_length"]:
                continue
            ids = [numbers.setdefault(block, len(numbers)) for block in entry["hash_ids"]]
            rows.append([entry["input_length"], entry["output_length"], ids])
            if len(rows) == MOONCAKE_REQUESTS:
                break
    return rows


def main(argv: list[str] | None = None) -> int:
    """Read, cut, write."""
    parser = new_parser("prepare-traces", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("out", type=Path, metavar="OUT.json")
    options = parser.parse_args(argv)
    folder, out = options.folder, options.out
    missing = [name for name in (*_AZURE.values(), _MOONCAKE) if not (folder / name).is_file()]
    if missing:
        parser.error(f"{folder}: there is no {missing[0]}")
    traces: dict[str, Sequence[Sequence[object]]] = {
        **{name: azure(folder / file) for name, file in _AZURE.items()},
        "mooncake": mooncake(folder / _MOONCAKE),
    }
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(traces, separators=(",", ":")))
    print(f"{out}: {out.stat().st_size / 1e3:.0f} KB", {name: len(rows) for name, rows in traces.items()})
    return 0
