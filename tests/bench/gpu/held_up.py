"""What holds up a server's host: where its scheduler's main thread stood for 9 ms and more.

    PYTHONPATH=SITE python3 tests/bench/gpu/run.py --model llama-8b --arms ours:auto ... --stalls FOLDER
    python3 tests/bench/gpu/held_up.py FOLDER --frames 4

Waiting for a step's tokens is most of it, and as it should be. What else takes that long keeps every token
waiting: compiling, loading a kernel, taking memory. A row per place, by the seconds spent in it; `ran` is
what of them the thread had a core.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ahead import by_the_gate


@dataclass(slots=True)
class Place:
    """The innermost frames of a stack, and all times that the thread stood there."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    ran_s: float = 0.0


def watched(environment: Mapping[str, str], folder: Path) -> dict[str, str]:
    """A server's environment, so that its schedulers write there where they stand."""
    return by_the_gate(environment) | {"PDMUXD_STALLS": str(folder.absolute())}


def places(folder: Path, frames: int, after_s: float) -> dict[str, Place]:
    """By the innermost `frames` frames; only what began `after_s` or later on the process's clock."""
    found: dict[str, Place] = {}
    for began_s, took_s, ran_s, stack in _stalls(folder):
        if began_s >= after_s:
            place = found.setdefault(" < ".join(stack.split(" < ")[:frames]), Place())
            place.count += 1
            place.total_s += took_s
            place.longest_s = max(place.longest_s, took_s)
            place.ran_s += ran_s
    return found


def _stalls(folder: Path) -> Iterator[tuple[float, float, float, str]]:
    for file in sorted(folder.glob("*.stalls")):
        for line in file.read_text().splitlines():
            began_s, took_s, ran_s, stack = line.split("\t")
            yield float(began_s), float(took_s), float(ran_s), stack


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--after-s", type=float, default=0.0, help="by its clock: without the start")
    options = parser.parse_args()
    found = places(options.folder, options.frames, options.after_s)
    print(f"{'count':>6} {'seconds':>8} {'longest':>8} {'ran':>8}  where, innermost first")
    for where, place in sorted(found.items(), key=lambda item: -item[1].total_s)[:40]:
        print(f"{place.count:6} {place.total_s:8.3f} {place.longest_s:8.3f} {place.ran_s:8.3f}  {where}")


if __name__ == "__main__":
    main()
