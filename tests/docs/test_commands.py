"""Commands in the documentation: each block is run by a test or says that it is not; each command exists."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from pdmuxd.daemon.cli.main import app

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]
WALKED = {
    "docs/run.md": "test_run_page.py",
    "docs/gitops.md": "test_gitops_page.py",
    "docs/configuration.md": "test_page_commands.py",
}
"""Pages whose blocks a test of tests/e2e runs, all but those that say otherwise."""
SAYS = re.compile(r"# (tested|not run)\b")
COMMAND = re.compile(r"(\$ )?(\w+=\S+ )*(pdmuxd|python3?|pip|make|curl|ssh|git|apt-get|export|ss) ")


def blocks(page: str) -> Iterator[tuple[str, str]]:
    """The language and the text of each fenced block."""
    text = (ROOT / page).read_text()
    yield from re.findall(r"^```(\w*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)


def commands(text: str) -> Iterator[list[str]]:
    """The words of each pdmuxd command of a block, without its name."""
    lines = text.replace("\\\n", " ").splitlines()
    while lines:
        line = lines.pop(0)
        if "pdmuxd " not in line:
            continue
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quotation that goes on in the next line
            lines[:1] = [f"{line}\n{lines[0]}"]
            continue
        for is_operator, part in itertools.groupby(words, lambda word: set(word) <= set("();<>|&")):
            said = list(part)
            names = [word for word in said if word.rpartition("/")[2] == "pdmuxd" and "=" not in word]
            if not is_operator and names and said[0] not in ("ssh", "python", "git"):
                yield said[said.index(names[0]) + 1 :]


@pytest.mark.parametrize("page", PAGES)
def test_every_block_of_commands_is_run_by_a_test_or_says_that_it_is_not(page: str) -> None:
    if page in WALKED:
        assert Path(page).name in (ROOT / "tests" / "e2e" / WALKED[page]).read_text()
        return
    silent = [
        text
        for language, text in blocks(page)
        if (language in ("sh", "console") or COMMAND.match(text)) and not SAYS.match(text)
    ]
    assert silent == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_and_option_of_a_page_exists(page: str) -> None:
    group = typer.main.get_command(app)
    for _, text in blocks(page):
        for words in commands(text):
            _check(group, words)


def _check(group: Any, words: list[str]) -> None:
    """Follow the words through groups of commands; each option must be one of the command's."""
    at, rest = group, list(words)
    while rest:
        word = rest.pop(0)
        options = {name: one for one in at.params for name in (*one.opts, *one.secondary_opts)}
        if word.startswith("-") and not word.lstrip("-").isdigit():
            name = word.partition("=")[0]
            assert name in options or name in ("--help", "--version"), f"{shlex.join(words)}: {name}"
            is_flag = name not in options or getattr(options[name], "is_flag", False)
            if not is_flag and "=" not in word:
                rest.pop(0)
        elif hasattr(at, "get_command"):
            found = at.get_command(at.context_class(at), word)
            assert found is not None, f"{shlex.join(words)}: {word}"
            at = found


def test_a_command_that_does_not_exist_is_found() -> None:
    group = typer.main.get_command(app)
    for wrong in ("tenat list", "tenant create chat --ttft 3", "serve --first-rum"):
        with pytest.raises(AssertionError):
            _check(group, shlex.split(wrong))
    assert list(commands("until pdmuxd status; do sleep 1; done\nx=$(pdmuxd tenant key issue a | tail)")) == [
        ["status"],
        ["tenant", "key", "issue", "a"],
    ]
