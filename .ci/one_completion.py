"""Take the curl line that `make serve` printed, ask for one streamed completion, and check it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Exit 0 if the stream carries content and ends with [DONE]."""
    lines = Path(sys.argv[1]).read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.lstrip().startswith("curl "))
    command = ""
    for line in lines[start:]:
        command += " " + line.strip().removesuffix("\\")
        if not line.rstrip().endswith("\\"):
            break
    out = subprocess.run(shlex.split(command), capture_output=True, text=True, timeout=250, check=True).stdout  # noqa: S603
    events = [line.removeprefix("data: ") for line in out.splitlines() if line.startswith("data: ")]
    if not events or events[-1] != "[DONE]":
        sys.stdout.write(f"not a stream that ends with [DONE]:\n{out}\n")
        return 1
    chunks = [json.loads(event) for event in events[:-1]]
    deltas = [c["choices"][0]["delta"].get("content") or "" for c in chunks if c.get("choices")]
    sys.stdout.write(f"{len(chunks)} chunks: {''.join(deltas)[:70]}...\n")
    return 0 if "".join(deltas).strip() else 1


if __name__ == "__main__":
    sys.exit(main())
