"""docs/emulator-server.md has every flag and path of the emulated engine's process, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from pdmuxd.engine.emulator.server.refusals import MESSAGES

ROOT = Path(__file__).parents[2]
SERVER = ROOT / "engine" / "emulator" / "server"
TEXT = (ROOT / "docs" / "emulator-server.md").read_text()


def cells(header: str) -> str:
    """The first cells of a table."""
    table = TEXT.partition(header)[2].partition("\n\n")[0]
    return "\n".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| "))


def test_the_flags_are_those_of_the_process() -> None:
    taken = set(re.findall(r'"(--[a-z-]+)"', (SERVER / "arguments.py").read_text()))
    assert len(taken) > 5
    assert set(re.findall(r"--[a-z-]+", cells("| flag | default | |"))) == taken


def test_the_paths_are_those_of_the_process() -> None:
    source = (SERVER / "app.py").read_text().replace("Route(MESSAGES", f'Route("{MESSAGES}"')
    served = {path.replace("{MESSAGES}", MESSAGES) for path in re.findall(r'Route\(f?"([^"]+)"', source)}
    assert len(served) > 10
    named = re.findall(r"(?<=[` ])/[\w/.{}:]+(?=`)", cells("| path | as in SGLang, and |"))
    assert set(named) == served
