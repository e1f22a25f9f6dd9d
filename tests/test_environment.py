"""How the environments are made: by uv with pip's own indexes, by pip where uv fails, from one lock file."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from pdmuxd.daemon.sglang_environment.indexes import pip_settings, uv_environment

ROOT = Path(__file__).parents[1]
LOCK = (ROOT / "constraints.txt").read_text().splitlines()


@pytest.fixture
def environment() -> ModuleType:
    spec = importlib.util.spec_from_file_location("environment", ROOT / ".ci" / "environment.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def commands(
    environment: ModuleType, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> list[str]:
    """What is run, as text; a command that contains one of the parameter's words fails."""
    run: list[str] = []

    def record(command: Any, environ: Any = None) -> bool:
        run.append(" ".join(command))
        return not any(word in run[-1] for word in getattr(request, "param", ()))

    monkeypatch.setattr(environment, "_run", record)
    monkeypatch.setattr(environment.venv, "create", lambda folder, **options: None)
    monkeypatch.setattr(environment, "uv_environment_beside", lambda python: {})
    return run


def test_uv_gets_pips_indexes_when_pip_has_its_own() -> None:
    listing = (
        "global.index-url='https://one/simple'\n"
        "global.extra-index-url='file:///a/simple file:///b/simple'\n"
        "global.find-links='\\n/wheels\\n/more'\n"
        "install.index-url='https://two/simple'\n"
        ":env:.cert='/etc/ca.pem'\n"
    )
    found = uv_environment(pip_settings(listing), {"PATH": "/bin"})
    assert found["UV_DEFAULT_INDEX"] == "https://two/simple", "what is set for installing is above the rest"
    assert found["UV_INDEX"] == "file:///a/simple file:///b/simple"
    assert found["UV_FIND_LINKS"] == "/wheels,/more"
    assert found["SSL_CERT_FILE"] == "/etc/ca.pem"
    assert found["PATH"] == "/bin"


def test_the_users_own_setting_stays_when_pip_says_otherwise() -> None:
    found = uv_environment({"index-url": "https://pips/simple"}, {"UV_DEFAULT_INDEX": "https://users/simple"})
    assert found["UV_DEFAULT_INDEX"] == "https://users/simple"


def test_uv_installs_what_is_locked_when_it_is_there(environment: ModuleType, commands: list[str]) -> None:
    assert environment.install(Path(".venv"))
    assert ["uv pip install" in command for command in commands] == [False, True]
    assert all("--constraint constraints.txt" in command for command in commands)


@pytest.mark.parametrize(
    ("commands", "reason"),
    [(("--quiet uv",), "could not be fetched"), (("uv pip",), "could not install")],
    indirect=["commands"],
)
def test_pip_installs_and_says_why_when_uv_does_not(
    environment: ModuleType, commands: list[str], reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert environment.install(Path(".venv"))
    assert "-m pip install" in commands[-1]
    assert "uv pip" not in commands[-1]
    assert f"uv {reason}, so pip installs" in capsys.readouterr().out


@pytest.mark.parametrize("commands", [("install",)], indirect=True)
def test_it_is_an_error_when_pip_fails_too(environment: ModuleType, commands: list[str]) -> None:
    assert not environment.install(Path(".venv"))


def test_the_lowest_versions_are_installed_beside_locked_tools(
    environment: ModuleType, commands: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment.sys, "executable", str(tmp_path / "python"))
    assert not environment.install_lowest(tmp_path / "lowest")
    (tmp_path / "uv").touch()
    assert environment.install_lowest(tmp_path / "lowest")
    (command,) = commands
    assert "--resolution lowest-direct --editable . " in command
    assert command.count("==") == len(environment.TEST_TOOLS), "each tool is in the lock"
    assert "--constraint" not in command


def test_uvicorn_has_a_ceiling_as_long_as_what_it_does_not_document_is_subclassed() -> None:
    protocol = (ROOT / "daemon/httpd/protocol.py").read_text()
    assert "HttpToolsProtocol" in protocol, "no longer: then the ceiling may go"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (uvicorn,) = (it for it in map(Requirement, project["dependencies"]) if it.name == "uvicorn")
    (locked,) = (line.partition("==")[2] for line in LOCK if line.startswith("uvicorn=="))
    major, minor, *_ = map(int, locked.split("."))
    assert uvicorn.specifier.contains(locked)
    assert not uvicorn.specifier.contains(f"{major}.{minor + 1}.0"), "no version that the tests have not seen"


def test_every_requirement_is_locked_to_a_version_that_meets_it() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *(r for rs in project["optional-dependencies"].values() for r in rs)]
    locked = {}
    for line in LOCK:
        if not line.startswith("#"):
            pin = Requirement(line)
            (only,) = pin.specifier
            assert only.operator == "==", line
            locked[canonicalize_name(pin.name)] = only.version
    for requirement in map(Requirement, wanted):
        version = locked.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not locked: make lock"
        assert requirement.specifier.contains(version), f"{requirement} is locked to {version}: make lock"


def test_the_lock_names_no_place_to_download_from() -> None:
    assert not [line for line in LOCK if "://" in line or line.startswith("-") or "@" in line]


def test_the_hosted_gate_runs_ours_on_every_python_that_is_supported() -> None:
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())["jobs"]
    commands = {name: [step["run"] for step in job["steps"] if "run" in step] for name, job in jobs.items()}
    assert ".ci/run" in commands["everything"]
    assert "make check" in commands["check"]
    (version,) = (s["with"]["python-version"] for s in jobs["everything"]["steps"] if "with" in s)
    assert [version, *jobs["check"]["strategy"]["matrix"]["python"]] == ["3.11", "3.12", "3.13"]
