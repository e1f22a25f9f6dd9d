from __future__ import annotations

import re
import shlex
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import typer
from typer.core import TyperGroup
from typer.main import get_command

from pdmuxd.daemon.cli import lazy
from pdmuxd.daemon.cli.lazy import Command, Entry, load_command
from pdmuxd.daemon.cli.main import COMMANDS, USAGE_ERRORS, app, main
from pdmuxd.engine.core import errors
from pdmuxd.engine.core.errors import (
    EngineLostError,
    LinkError,
    PdmuxdError,
    SloError,
    StaleVersionError,
    StoreError,
    StoreSetupError,
    UnknownKeyError,
)


@pytest.fixture(autouse=True)
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No pdmuxd.toml or variable of this machine, and main()'s hook does not stay."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.fixture
def command_that(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., object]], None]:
    """Make `pdmuxd probe` run a function."""

    def install(function: Callable[..., object]) -> None:
        module = types.ModuleType("probe_command")
        module.register = lambda app: app.command("probe")(function)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "probe_command", module)
        monkeypatch.setitem(COMMANDS, "probe", Entry("probe_command", "For tests."))

    return install


def paths(command: Command, prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group, as words."""
    yield prefix
    if isinstance(command, TyperGroup):
        ctx = typer.Context(command)
        for name in command.list_commands(ctx):
            yield from paths(cast(Command, command.get_command(ctx, name)), (*prefix, name))


ALL_PATHS = sorted(paths(cast(Command, get_command(app))))


def test_the_walk_finds_commands_when_they_are_nested() -> None:
    assert {("serve",), ("replay",), ("config", "show"), ("db", "upgrade"), ("doctor",)} <= set(ALL_PATHS)


@pytest.mark.parametrize("path", ALL_PATHS, ids=" ".join)
def test_an_example_that_parses_is_shown_when_help_is_asked_for(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main([*path, "--help"]) == 0
    examples = re.findall(r"^\s*(?:Example:\s*)?(pdmuxd .+)$", capsys.readouterr().out, re.MULTILINE)
    assert examples
    assert any(set(path) <= set(shlex.split(example)) for example in examples)

    monkeypatch.setattr(lazy, "load_command", _disarmed)
    for example in examples:
        words = shlex.split(example.split(" > ")[0].split(" | ")[0])
        assert (main(words[1:]), capsys.readouterr().err) == (0, ""), example


def _disarmed(name: str, entry: Entry) -> Command:
    """The command, that parses its arguments and does nothing."""

    def disarm(command: Command) -> None:
        if isinstance(command, TyperGroup):
            if command.invoke_without_command:
                command.callback = lambda **_: None
            for child in command.commands.values():
                disarm(cast(Command, child))
        else:
            command.callback = lambda **_: None

    command = load_command(name, entry)
    disarm(command)
    return command


def test_all_commands_are_listed_when_nothing_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in COMMANDS)


@pytest.mark.parametrize("words", [["--help"], ["version"]])
def test_nothing_heavy_is_imported_when_a_quick_answer_is_asked_for(words: list[str]) -> None:
    script = (
        "import sys; from pdmuxd.daemon.cli.main import main; "
        f"code = main({words!r}); "
        "heavy = {'fastapi', 'httpx', 'numpy', 'pydantic_settings', 'rich', 'sqlalchemy', 'structlog'}; "
        "sys.exit(code or ' '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=250)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["sevre"], "No such command 'sevre': did you mean serve? (see pdmuxd --help)"),
        (["xyzzy"], "No such command 'xyzzy': there are serve, status, "),
        (["config"], "Missing command (see pdmuxd config --help)"),
        (["config", "shaw"], "No such command 'shaw'"),
        (["--bad"], "No such option: --bad"),
        (["config", "show", "--bad"], "No such option: --bad (see pdmuxd config show --help)"),
        (["config", "show", "surplus"], "surplus"),
        (["--config"], "--config"),
        (["--set", "data.port", "config", "show"], "--set 'data.port' is not allowed: give key=value"),
        (["--set", "data.prt=1", "config", "show"], "unknown key data.prt (flag): did you mean data.port?"),
        (["--log-level", "loud", "config", "show"], 'log.level is "loud" (flag): allowed is one of debug'),
        (["--config", "none.toml", "config", "show"], "cannot read the configuration file none.toml"),
    ],
)
def test_one_line_and_exit_code_2_answer_when_the_command_line_is_wrong(
    words: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    assert says in captured.err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (SloError("tbt_ms is 0"), 2),
        (StaleVersionError("version 3 is in force"), 2),
        (EngineLostError("engine died"), 1),
        (LinkError("mismatch"), 1),
        (StoreError("the database is locked"), 1),
        (StoreSetupError("there is no database"), 2),
        (UnknownKeyError("unknown token"), 1),
        (PdmuxdError("no answer\nfrom the daemon"), 1),
    ],
)
def test_one_line_and_the_kinds_exit_code_answer_when_a_command_fails(
    error: PdmuxdError,
    code: int,
    command_that: Callable[[Callable[..., object]], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail() -> None:
        raise error

    command_that(fail)
    assert main(["probe"]) == code
    assert capsys.readouterr().err == f"error: {' '.join(str(error).split())}\n"


def test_every_error_has_one_exit_code_when_the_tree_grows() -> None:
    runtime = {"StoreError", "EngineError", "LinkError", "AuthError", "RequestError"}
    top = {kind.__name__ for kind in PdmuxdError.__subclasses__() if kind.__module__ == errors.__name__}
    of_a_branch = {"StoreSetupError"}
    assert top == runtime | {kind.__name__ for kind in USAGE_ERRORS} - of_a_branch


def test_the_exit_code_is_the_commands_when_it_returns_or_raises_one(
    command_that: Callable[[Callable[..., object]], None],
) -> None:
    def returns() -> int:
        return 3

    def exits() -> None:
        raise typer.Exit(4)

    command_that(returns)
    assert main(["probe"]) == 3
    command_that(exits)
    assert main(["probe"]) == 4


def test_the_exit_code_is_130_when_the_command_is_interrupted(
    command_that: Callable[[Callable[..., object]], None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    command_that(interrupt)
    assert main(["probe"]) == 130
    assert "Traceback" not in capsys.readouterr().err


CRASH = """
import sys, types
from pdmuxd.daemon.cli.lazy import Entry
from pdmuxd.daemon.cli.main import COMMANDS, main
def crash():
    raise RuntimeError("broken: pdm_abcdefghijklmnop")
module = types.ModuleType("probe_command")
module.register = lambda app: app.command("probe")(crash)
sys.modules["probe_command"] = module
COMMANDS["probe"] = Entry("probe_command", "For tests.")
sys.exit(main(sys.argv[1:]))
"""


def crash(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", CRASH, *words], capture_output=True, text=True, timeout=250)


def test_one_line_with_the_kind_answers_when_an_error_is_unexpected() -> None:
    done = crash("probe")
    assert done.returncode == 1
    assert done.stderr == (
        "error: unexpected RuntimeError: broken: pdm_*** (run `pdmuxd --debug ...` for the traceback)\n"
    )


def test_the_traceback_is_shown_when_debugging_is_asked_for() -> None:
    done = crash("--debug", "probe")
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr


def test_help_and_version_work_when_the_configuration_is_broken(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "pdmuxd.toml").write_text("[broken\n")
    assert main(["version"]) == 0
    assert main(["config", "--help"]) == 0
    assert main(["serve", "--help"]) == 0
    assert main(["config", "show"]) == 2
    assert "is not TOML" in capsys.readouterr().err


def test_nothing_is_said_when_the_reader_of_the_output_leaves() -> None:
    pipeline = f"{shlex.quote(sys.executable)} -m pdmuxd.daemon.cli.main config example | true"
    done = subprocess.run(["bash", "-c", pipeline], capture_output=True, text=True, timeout=250)
    assert done.stderr == ""
