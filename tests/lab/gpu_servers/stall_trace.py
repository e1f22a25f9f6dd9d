"""What holds up a host: where the processes that tokens pass stood for 9 ms and more.

    python tests/lab run --model llama-8b --arms ours:auto ... --stalls FOLDER
    python tests/lab stall-trace FOLDER --frames 4

Of a scheduler, waiting for a step's tokens is most of it, and as it should be. What else takes that long
keeps every token waiting: compiling, loading a kernel, taking memory. Of the processes behind it, the
detokenizer, SGLang's HTTP server (`front`) and the script's own client, rows are stretches of work without a
pause, by where most looks found them. A row per process and place, by the seconds spent in it; `ran` is what
of them the thread had a core.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpu_servers.options import new_parser
from in_sglang.gate import stalls


@dataclass(slots=True)
class Place:
    """The innermost frames of a stack, and all times that the thread stood there."""

    count: int = 0
    total_s: float = 0.0
    longest_s: float = 0.0
    ran_s: float = 0.0


def watch_client(folder: Path) -> None:
    """This process, too, in a thread of its own."""
    stalls.watch(folder.absolute(), "client")


def places(folder: Path, frames: int, after_s: float) -> dict[str, Place]:
    """By process and the innermost `frames` frames; what began `after_s` or later on the host's clock."""
    found: dict[str, Place] = {}
    for role, began_s, took_s, ran_s, stack in _stalls(folder):
        if began_s >= after_s:
            place = found.setdefault(f"{role}: {' < '.join(stack.split(' < ')[:frames])}", Place())
            place.count += 1
            place.total_s += took_s
            place.longest_s = max(place.longest_s, took_s)
            place.ran_s += ran_s
    return found


def _stalls(folder: Path) -> Iterator[tuple[str, float, float, float, str]]:
    for file in sorted(folder.glob("*.stalls")):
        for line in file.read_text().splitlines():
            began_s, took_s, ran_s, stack = line.split("\t")
            yield file.stem.partition("-")[0], float(began_s), float(took_s), float(ran_s), stack


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = new_parser("stall-trace", __doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--frames", type=int, default=4)
    parser.add_argument("--after-s", type=float, default=0.0, help="by its clock: without the start")
    options = parser.parse_args(argv)
    found = places(options.folder, options.frames, options.after_s)
    print(f"{'count':>6} {'seconds':>8} {'longest':>8} {'ran':>8}  where, innermost first")
    for where, place in sorted(found.items(), key=lambda item: -item[1].total_s)[:40]:
        print(f"{place.count:6} {place.total_s:8.3f} {place.longest_s:8.3f} {place.ran_s:8.3f}  {where}")
    return 0
