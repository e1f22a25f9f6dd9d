"""The import contracts of pyproject.toml, on copies of the tree with imports added to them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from no_cycles import cycle_in, folders

ROOT = Path(__file__).parents[1]
FOLDERS = ("controlplane", "daemon", "engine", "migrations", "systemd", "tui")

WRONG = [
    ("engine/core/slo.py", "import numpy", "pdmuxd.engine.core.slo must not import numpy"),
    ("engine/core/slo.py", "import time", "pdmuxd.engine.core.slo must not import time"),
    ("engine/core/types.py", "import asyncio", "pdmuxd.engine.core.types must not import asyncio"),
    ("engine/core/types.py", "import socket", "pdmuxd.engine.core.types must not import socket"),
    (
        "engine/core/guard.py",
        "def later():\n    from pdmuxd.engine.link import messages",
        "pdmuxd.engine.core.guard must not import pdmuxd.engine.link.messages",
    ),
    ("engine/emulator/kv.py", "import torch", "pdmuxd.engine.emulator.kv must not import torch"),
    ("engine/emulator/kv.py", "import fastapi", "pdmuxd.engine.emulator.kv must not import fastapi"),
    (
        "engine/emulator/engine.py",
        "import pdmuxd.controlplane.database.row",
        "pdmuxd.engine.emulator.engine must not import pdmuxd.controlplane.database.row",
    ),
    (
        "engine/profiling/measurement.py",
        "import zmq",
        "pdmuxd.engine.profiling.measurement must not import zmq",
    ),
    ("engine/sglang/requests.py", "import fastapi", "pdmuxd.engine.sglang.requests must not import fastapi"),
    (
        "engine/sglang/internals/state.py",
        "import sglang.srt",
        "pdmuxd.engine.sglang.internals.state must not import sglang",
    ),
    (
        "engine/loop/loop.py",
        "import sglang.srt",
        "pdmuxd.engine.loop.loop must not import sglang",
    ),
    ("engine/link/frames.py", "import sqlmodel", "pdmuxd.engine.link.frames must not import sqlmodel"),
    (
        "controlplane/database/row.py",
        "from pdmuxd.daemon import metrics",
        "pdmuxd.controlplane.database.row must not import pdmuxd.daemon.metrics",
    ),
    (
        "controlplane/database/row.py",
        "import sglang.srt",
        "pdmuxd.controlplane.database.row must not import sglang",
    ),
    (
        "tui/__init__.py",
        "import pdmuxd.controlplane.database.opening",
        "pdmuxd.tui must not import pdmuxd.controlplane.database.opening",
    ),
    (
        "tui/__init__.py",
        "from pdmuxd.engine.core import slo",
        "pdmuxd.tui must not import pdmuxd.engine.core",
    ),
    ("tui/show/table.py", "import textual", "pdmuxd.tui.show.table must not import textual"),
    ("tui/state/view.py", "import textual.app", "pdmuxd.tui.state.view must not import textual"),
    ("tui/client/sse.py", "import rich.text", "pdmuxd.tui.client.sse must not import rich"),
    (
        "daemon/metrics/counted.py",
        "import pdmuxd.tui.app",
        "pdmuxd.daemon.metrics.counted must not import pdmuxd.tui.app",
    ),
    ("daemon/metrics/counted.py", "import torch.cuda", "pdmuxd.daemon.metrics.counted must not import torch"),
    ("daemon/metrics/counted.py", "import sglang", "pdmuxd.daemon.metrics.counted must not import sglang"),
    (
        "migrations/__init__.py",
        "import pdmuxd.daemon.metrics",
        "pdmuxd.migrations must not import pdmuxd.daemon.metrics",
    ),
    (
        "systemd/install.py",
        "import pdmuxd.daemon.metrics",
        "pdmuxd.systemd.install must not import pdmuxd.daemon.metrics",
    ),
]


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages under their import names, with the contracts."""
    place = tmp_path_factory.mktemp("contracts")
    for folder in FOLDERS:
        shutil.copytree(
            ROOT / folder, place / "src" / "pdmuxd" / folder, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", place)
    return place


def check(place: Path) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(place / "src"), str(ROOT / "tests" / "support")])
    return subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=place,
        env=os.environ | {"PYTHONPATH": paths, "COLUMNS": "200", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=250,
    )


@pytest.mark.slow
def test_the_contracts_hold_when_nothing_is_added_and_each_breaks_when_an_import_is_wrong(copy: Path) -> None:
    done = check(copy)
    assert done.returncode == 0, done.stdout + done.stderr

    for file, line, _ in WRONG:
        with (copy / "src" / "pdmuxd" / file).open("a") as source:
            source.write(f"\n{line}\n")
    done = check(copy)
    assert done.returncode == 1
    missed = [said for _, _, said in WRONG if said not in done.stdout]
    assert not missed, done.stdout
    assert "0 kept, 16 broken" in done.stdout


def test_a_cycle_is_found_when_modules_import_each_other() -> None:
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": set()}) == []
    found = cycle_in({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}})
    assert (set(found), found[0]) == ({"a", "b", "c"}, found[-1])


def test_a_cycle_of_folders_is_found_when_no_module_is_in_one() -> None:
    modules = {"p.d.a.x": {"p.d.b.x"}, "p.d.b.y": {"p.d.a.y"}, "p.d.c": {"p.d.a.x"}, "p.d.a": {"p.d.a.x"}}
    assert cycle_in(modules) == []
    found = folders(modules)
    assert found == {"p.d": {"p.d.a": {"p.d.b"}, "p.d.b": {"p.d.a"}, "p.d.c": {"p.d.a"}}}
    assert set(cycle_in(found["p.d"])) == {"p.d.a", "p.d.b"}
