"""The tokens' two ways as a measurement: the script's command line, and what becomes of it."""

import pytest

from gpu_plans import token_path
from gpu_servers.outcome import MISSED
from pdmuxd.daemon.bench.results import read_results

ROW = {"streams": 4, "events_per_s": 99.0, "daemon_us_per_token": 9.0, "engine_us_per_token": 8.0}
ROW |= {"gap_p50_ms": 7.0, "gap_p99_ms": 6.0, "failed": 0}
SCRIPT = """
import json, sys
words = sys.argv[1:]
rows = [{row} | {{"token_path": way, "words": words}} for way in {ways}]
open(words[words.index("--json") + 1], "w").write(json.dumps({{"rows": rows}}))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def one(code, *words):
        (tmp_path / "script.py").write_text(code)
        given = ["--script", "script.py", "--results", "results.jsonl", *words]
        code = token_path.main(given)
        return code, list(read_results(tmp_path / "results.jsonl"))

    return one


def test_the_script_is_told_of_the_model_and_of_the_flags_of_other_measurements(run, tmp_path):
    code, found = run(
        SCRIPT.format(row=ROW, ways=["http", "direct"]),
        "--model",
        "tiny",
        *("--cpu", "--python", "there/python"),
    )
    words = found[0]["rows"][0]["words"]
    assert code == 0
    assert words[words.index("--model") + 1].endswith("/tiny")
    settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
    assert any("--load-format dummy" in one for one in settings)
    python = next(one for one in settings if one.startswith("engine.sglang.python="))
    assert python.partition("=")[2] == str(tmp_path / "there" / "python"), "the daemon runs in another folder"
    assert not any(one.startswith(("engine.kind", "engine.sglang.model=")) for one in settings)


def test_one_way_alone_is_kept_and_is_not_what_was_aimed_at(run):
    code, found = run(SCRIPT.format(row=ROW, ways=["http"]), "--engine", "emulator")
    assert code == MISSED
    assert "--model" not in found[0]["rows"][0]["words"]


def test_what_was_found_is_kept_when_the_other_way_fails(run, capsys):
    row = ROW | {"late_behind_gap_ratio": 0.001, "late_behind_request_ratio": 0.25}
    script = SCRIPT.format(row=row, ways=["http"]) + "raise SystemExit('no tokens came')"
    code, found = run(script, "--engine", "emulator")
    assert code == MISSED
    assert [row["token_path"] for row in found[0]["rows"]] == ["http"]
    said = capsys.readouterr().out
    assert "late behind the scheduler 0.100% of gaps, 25.00% of requests" in said
    assert "script.py exited with 1: no tokens came" in said


@pytest.mark.parametrize(
    ("script", "words", "says"),
    [
        ("raise SystemExit('no port')", (), "script.py exited with 1: no port"),
        ("import time; time.sleep(60)", ("--budget-s", "1"), "not done within 1 s"),
        ("", ("--script", "none.py"), "there is no none.py: run it in the project's folder"),
    ],
)
def test_why_it_failed_is_said(run, capsys, script, words, says):
    assert run(script, "--engine", "emulator", *words) == (1, [])
    assert says in capsys.readouterr().out
