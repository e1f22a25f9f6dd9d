"""SGLang's environment: what is refused, each step, and how it goes on when it was broken off."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from pdmuxd.daemon.cli.main import main
from pdmuxd.daemon.sglang_environment import install as module
from pdmuxd.daemon.sglang_environment.install import (
    NEEDED_BYTES,
    Plan,
    check_disk,
    install,
    plan,
    plugin_requirements,
)
from pdmuxd.engine.core.errors import EngineError, SettingsError
from pdmuxd.engine.sglang.api.versions import TESTED, TRIED


@pytest.fixture(autouse=True)
def _without_pip(monkeypatch):
    monkeypatch.setattr(module, "uv_environment_beside", lambda python: {})


def wanted(folder: Path, source: Path | None = None) -> Plan:
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "bin" / "python").touch()
    return Plan(folder=folder, version=TESTED[-1], lock=Path("/lock"), source=source)


def test_a_version_that_is_not_supported_is_refused_and_the_supported_ones_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"'0\.4\.1' is not supported; allowed are 0\.5\.22, 0\.5\.23"):
        plan(tmp_path, "0.4.1")


def test_another_version_is_installed_when_tests_try_it(tmp_path, monkeypatch):
    monkeypatch.setenv(TRIED, "0.4.1")
    assert (plan(tmp_path, "0.4.1").version, plan(tmp_path, "0.4.1").lock) == ("0.4.1", None)


def test_everything_is_pinned_with_the_newest_version_and_resolved_anew_with_another(tmp_path):
    assert plan(tmp_path, TESTED[-1]).lock is not None
    assert plan(tmp_path, TESTED[0]).lock is None


def test_the_disk_is_checked_before_anything_is_written(tmp_path):
    folder = tmp_path / "not" / "there"
    with pytest.raises(SettingsError, match=r"SGLang needs 12 GB and .* has 1\.0 GB free"):
        check_disk(folder, lambda place: 10**9)
    check_disk(folder, lambda place: NEEDED_BYTES)
    assert list(tmp_path.iterdir()) == []
    wanted(folder)
    check_disk(folder, lambda place: 0)  # begun before: what is missing needs less, nobody knows how much


def test_an_environment_that_was_begun_is_finished_when_it_is_run_again(tmp_path):
    run: list[str] = []
    said: list[str] = []
    broken = True

    def runner(command, environ):
        run.append(" ".join(map(str, command)))
        return not (broken and "sglang==" in run[-1])

    goal = wanted(tmp_path / "sglang", source=tmp_path)
    with pytest.raises(EngineError, match=r"SGLang cannot be installed; .*again to go on from there"):
        install(goal, said.append, runner)
    assert [line[:5] for line in said] == ["[1/4]", "[2/4]", "[3/4]"]
    broken = False
    run.clear()
    install(goal, said.append, runner)
    assert f"--constraint /lock sglang=={TESTED[-1]} greenlet" in run[-2]
    assert run[-1].endswith(f"--no-deps --editable {tmp_path}")
    assert said[-1].startswith("done in")


def test_all_that_the_plugin_imports_is_installed_with_sglang():
    package = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
    extra = package["optional-dependencies"]["sglang"]
    beside = [name for name in extra if not name.startswith("sglang")]
    assert beside
    lines = [f'{name}; extra == "sglang"' for name in extra] + ['mkdocs; extra == "dev"', "uvicorn>=1"]
    assert plugin_requirements(lines) == beside


def test_pip_installs_when_uv_cannot(tmp_path):
    run: list[str] = []

    def runner(command, environ):
        run.append(" ".join(map(str, command)))
        return "/bin/uv " not in run[-1]

    install(wanted(tmp_path / "sglang", source=tmp_path), lambda text: None, runner)
    assert "-m pip install" in run[-1]


def test_the_package_that_runs_takes_the_place_of_an_older_copy(tmp_path, monkeypatch):
    place = tmp_path / "installed"
    for name in ("pdmuxd/engine/plugin.py", "pdmuxd-2.dist-info/entry_points.txt", "bin/pdmuxd"):
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(name)

    class File(type(Path())):
        def locate(self):
            return place / str(self).replace("../../../", "")

    files = ("pdmuxd/engine/plugin.py", "pdmuxd-2.dist-info/entry_points.txt", "../../../bin/pdmuxd")
    monkeypatch.setattr(module.metadata, "files", lambda name: [File(one) for one in files])
    target = tmp_path / "packages"
    for old in ("pdmuxd/gone.py", "pdmuxd-1.dist-info/RECORD", "sglang/__init__.py"):
        (target / old).parent.mkdir(parents=True)
        (target / old).touch()
    module.copy_package(target)
    found = sorted(str(path.relative_to(target)) for path in target.rglob("*") if path.is_file())
    assert found == ["pdmuxd-2.dist-info/entry_points.txt", "pdmuxd/engine/plugin.py", "sglang/__init__.py"]


def test_the_command_says_what_it_would_do(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    monkeypatch.setattr(module, "_free_bytes", lambda place: NEEDED_BYTES)
    assert main(["--set", "state_dir=state", "install-sglang", "--dry-run"]) == 0
    assert f"into {tmp_path / 'state' / 'sglang'}" in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []
    assert main(["install-sglang", "--version", "1.0"]) == 2
    assert "allowed are 0.5.22, 0.5.23" in capsys.readouterr().err
