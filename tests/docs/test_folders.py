"""docs/folders.md has every folder that a contract names, and names no folder that is gone."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "folders.md").read_text().partition("## Inside")[0]
NAMED = [
    folder
    for line in TEXT.splitlines()
    if line.startswith("| `")
    for folder in re.findall(r"`([\w/]+)/`", line.split("|")[1])
]


def test_every_folder_of_a_contract_has_a_sentence() -> None:
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    wanted = {
        it["folder"].removeprefix("pdmuxd.").replace(".", "/") for it in linter["contracts"] if "folder" in it
    }
    assert len(wanted) > 10
    assert wanted - set(NAMED) == set()


def test_every_folder_that_has_a_sentence_exists_and_has_it_once() -> None:
    assert [folder for folder in NAMED if not (ROOT / folder).is_dir()] == []
    assert sorted(set(NAMED)) == sorted(NAMED)


def test_every_package_below_the_first_level_has_a_sentence() -> None:
    packages = {
        str(path.parent.relative_to(ROOT))
        for top in ("engine", "controlplane", "daemon")
        for path in ROOT.glob(f"{top}/*/__init__.py")
    }
    assert packages - set(NAMED) - {"controlplane/api"} == set()
