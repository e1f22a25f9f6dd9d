"""What a person reads who gave a value that cannot be read, or is out of its range."""

from __future__ import annotations

import pytest

from pdmuxd.daemon.cli.main import main


@pytest.fixture(autouse=True)
def _elsewhere(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", __import__("sys").excepthook)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("slo set default --tbt-ms abc", "for '--tbt-ms': 'abc' is not a number"),
        ("tenant limit default many", "for 'max_in_flight': 'many' is not a whole number"),
        ("profile activate zzz", "for 'ID': 'zzz' is not a whole number"),
        ("audit --limit 1.5", "for '--limit': '1.5' is not a whole number"),
        ("audit --limit -1", "for '--limit': '-1' is not allowed; it must be at least 1 "),
        ("what-if replay --rate 0", "for '--rate': '0' is not allowed; it must be at least 0.05 "),
        ("generate chat out --rate 1e400", "for '--rate': '1e400' is not allowed; it must be at most 10000 "),
        ("tenant limit default -5", "-5 is read as an option; write -- before a negative number"),
        ("tenant limit default -x", "No such option: -x"),
    ],
)
def test_one_line_names_the_value_and_what_is_allowed(command, said, capsys):
    assert main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "pydantic" not in line
    assert "Input should" not in line
