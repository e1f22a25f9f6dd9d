"""`pdmuxd generate`."""

from dataclasses import replace

import pytest
import typer
from typer.testing import CliRunner

from pdmuxd.daemon.cli import generate as command
from pdmuxd.daemon.replay.formats.read import open_trace
from pdmuxd.daemon.replay.generate import generate
from pdmuxd.engine.core.errors import InvalidValueError


@pytest.fixture
def invoke():
    app = typer.Typer(rich_markup_mode=None)
    app.callback()(lambda: None)
    command.register(app)
    return lambda *words: CliRunner().invoke(app, ["generate", *map(str, words)])


@pytest.mark.parametrize("kind", ["tools", "agents"])
def test_the_file_is_a_trace_with_the_requests_of_the_load(invoke, tmp_path, kind):
    out = tmp_path / "load.jsonl"
    result = invoke(kind, out, "--rate", "3", "--minutes", "1", "--seed", "4")
    assert result.exit_code == 0, result.output
    read = list(open_trace(out)[1])
    made = generate(kind, rate_per_s=3.0, duration_s=60.0, seed=4)
    assert [replace(one, arrival_s=0.0, line=0) for one in read] == [
        replace(one, arrival_s=0.0, line=0) for one in made
    ]
    assert f"{len(made)} requests in 1 min" in result.output


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nonsense", "new.jsonl"), "KIND is 'nonsense'; allowed is one of chat, "),
        (("chat", "old.jsonl"), "old.jsonl exists; name another file"),
        (("chat", "none/new.jsonl"), "cannot be written: No such file or directory"),
        (("chat", "new.jsonl", "--rate", "10000", "--minutes", "1440"), "2,000,000 requests at most"),
        (("chat", "new.jsonl", "--rate", "0.001", "--minutes", "0.1"), "must be some requests"),
    ],
)
def test_what_cannot_be_done_is_said_and_nothing_is_written(invoke, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "old.jsonl").write_text("mine")
    result = invoke(*words)
    assert isinstance(result.exception, InvalidValueError)
    assert says in str(result.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["old.jsonl"]
    assert (tmp_path / "old.jsonl").read_text() == "mine"
