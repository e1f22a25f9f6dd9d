"""What the mutation job makes of mutmut's verdicts."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

SURVIVED, FAILED, TIMEOUT, NO_TESTS, INTERRUPTED = 0, 1, 36, 33, 2


@pytest.fixture(scope="module")
def mutants() -> ModuleType:
    path = Path(__file__).with_name("mutants.py")
    spec = importlib.util.spec_from_file_location("mutation_job", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_mutant_is_caught_only_when_a_test_noticed(mutants: ModuleType) -> None:
    assert mutants.caught_ratio([FAILED, TIMEOUT, SURVIVED, NO_TESTS]) == 0.5
    assert mutants.caught_ratio([FAILED, None, INTERRUPTED]) == 1.0
    assert mutants.caught_ratio([None]) == 0.0


def test_modules_and_what_was_missed_are_told_when_reported(mutants: ModuleType) -> None:
    found = {
        "pdmuxd.engine.core.guard.x_a__mutmut_1": FAILED,
        "pdmuxd.engine.core.guard.x_a__mutmut_2": SURVIVED,
        "pdmuxd.engine.core.slo.xǁSloǁof__mutmut_1": None,
    }
    lines = [line.split() for line in mutants.report(found)]
    assert ["core.guard", "2", "2", "50.0%"] in lines
    assert ["core.slo", "1", "0", "-"] in lines
    assert ["all", "3", "2", "50.0%"] in lines
    assert ["pdmuxd.engine.core.guard.x_a__mutmut_2:", "survived"] in lines


def test_the_copy_follows_when_files_change_or_go(
    mutants: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, place = tmp_path / "root", tmp_path / "place"
    (root / "engine").mkdir(parents=True)
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\ntestpaths = ['tests']\n")
    (root / "engine" / "a.py").write_text("A = 1\n")
    (root / "engine" / "b.py").write_text("B = 1\n")
    monkeypatch.setattr(mutants, "ROOT", root)
    monkeypatch.setattr(mutants, "PLACE", place)
    mutants.stage()
    a, b = (place / "src/pdmuxd/engine" / name for name in ("a.py", "b.py"))
    kept_ns = a.stat().st_mtime_ns
    settings = tomllib.loads((place / "pyproject.toml").read_text())["tool"]
    assert settings["pytest"]["ini_options"]["testpaths"] == ["tests"]
    assert settings["mutmut"]["source_paths"] == ["src"]

    (root / "engine" / "b.py").unlink()
    (root / "engine" / "c.py").write_text("C = 1\n")
    mutants.stage()
    assert a.stat().st_mtime_ns == kept_ns
    assert not b.exists()
    assert b.with_name("c.py").read_text() == "C = 1\n"
