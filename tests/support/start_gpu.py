"""docs/start-gpu.md as a script: its blocks in their order, each with what its first line says of it.

What a reader would do is done here too: `serve` goes into another terminal (here: the background), the daemon
is stopped while a profile is measured, and a name that the page only gives as an example is replaced.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "start-gpu.md"
MODEL = "/srv/models/llama-3.1-8b-instruct"
INSTALLATION = ("1", "2", "4")
_MEASURED = "10"
_BLOCK = re.compile(r"^\*\*(\d+|No GPU)[^*]*\*\*|```sh\n# ([^\n]*)\n(.*?)```", re.DOTALL | re.MULTILINE)
_MARK = "@@ step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One block of commands."""

    step: str
    """The number before it on the page, or "No GPU"."""
    said: str
    """What its first line says of how it is tested."""
    commands: str


def blocks(page: Path = PAGE) -> list[Block]:
    """Every block of the page."""
    text, step, found = page.read_text(), "", []
    for match in _BLOCK.finditer(text):
        if match[1]:
            step = match[1]
        else:
            found.append(Block(step=step, said=match[2], commands=match[3]))
    assert len(found) == text.count("```sh"), "each block begins with how it is tested"
    return found


def script(chosen: Sequence[Block], replaced: Mapping[str, str], *, last: str = "") -> str:
    """One script of them: a line with the time before each, then `last`, and the daemon's end."""
    lines, serve = [], ""
    for block in chosen:
        commands = block.commands
        if "pdmuxd serve" in commands:
            commands = commands.rstrip("\n") + " >> serve.log 2>&1 &\nserving=$!\n"
            serve = commands
        if block.step == _MEASURED:
            commands = (
                f"kill $serving\nwait $serving\n{commands}{serve}until pdmuxd status; do sleep 1; done\n"
            )
        if block.said == "tested with --dry-run":
            commands = commands.rstrip("\n") + " --dry-run > units\n"
        for old, new in replaced.items():
            commands = commands.replace(old, new)
        lines.append(f'echo "{_MARK} {block.step} $EPOCHREALTIME"\n{commands}')
    return "\n".join(
        [*lines, last, f'echo "{_MARK} stop $EPOCHREALTIME"', "kill $serving", "wait $serving", ""]
    )


def seconds(shown: str) -> dict[str, float]:
    """How long each step took, given what the script printed."""
    marks = re.findall(rf"^{_MARK} (.+) ([\d.]+)$", shown, re.MULTILINE)
    return {step: float(end) - float(at) for (step, at), (_, end) in itertools.pairwise(marks)}
