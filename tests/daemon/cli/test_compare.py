from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from traces import mooncake_line, mooncake_trace, write

from pdmuxd.daemon.cli.main import main

QUICK = ("--seconds", "2", "--seeds", "1", "--resolution", "0.3", "--ttft-fixed-ms", "100")


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return mooncake_trace(tmp_path / "trace.jsonl", 40)


def refused(capsys: pytest.CaptureFixture[str], *words: object) -> str:
    assert main(["compare", *map(str, words)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert captured.err.count("\n") == 1
    return captured.err


@pytest.mark.slow
def test_table_json_and_report_are_made_when_all_are_asked_for(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_path, html = tmp_path / "c.json", tmp_path / "c.html"
    words = [
        "compare", str(trace), "--policies", "muxwise,static:96,36", "--policy", "chunked:512",
        "--tbt-ms", "20,50", *QUICK, "--json", str(json_path), "--html", str(html),
    ]  # fmt: skip
    assert main(words) == 0
    out = capsys.readouterr().out
    read = json.loads(json_path.read_text())
    assert [(c["policy"], c["tbt_ms"]) for c in read["cells"]] == [
        (policy, tbt) for tbt in (20.0, 50.0) for policy in ("muxwise", "static:96,36", "chunked:512")
    ]
    assert all(name in out for name in ("muxwise", "static:96,36", "chunked:512", "TBT 50 ms"))
    assert "Goodput curves" in html.read_text()
    again = shlex.split(read["command"])
    assert again[0] == "pdmuxd"
    assert main([*again[1:-4], "--json", str(tmp_path / "again.json")]) == 0
    assert json.loads((tmp_path / "again.json").read_text())["cells"] == read["cells"]


def test_only_the_given_rates_are_run_when_rates_are_given(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    assert (
        main(["compare", str(trace), "--policies", "muxwise", "--rates", "4,2", *QUICK, "--json", str(path)])
        == 0
    )
    read = json.loads(path.read_text())
    assert read["runs"]["rates_per_s"] == [4.0, 2.0]
    assert sorted(point["rate_per_s"] for point in read["curve"]) == [2.0, 4.0]


def test_variants_are_run_too_when_ablating(trace: Path, tmp_path: Path) -> None:
    path = tmp_path / "c.json"
    words = ["--policies", "drift,chunked:512", "--ablate", "--rates", "3", *QUICK, "--json", str(path)]
    assert main(["compare", str(trace), *words]) == 0
    assert [cell["policy"] for cell in json.loads(path.read_text())["cells"]] == [
        "drift", "drift:nopreempt", "drift:whole", "drift:blocking", "chunked:512",
    ]  # fmt: skip


def test_longer_prompts_are_left_out_and_said_when_a_limit_is_given(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        main(["compare", str(trace), "--policies", "muxwise", "--rates", "3", "--max-input", "1000", *QUICK])
        == 0
    )
    assert "requests were left out because their prompts have more than 1,000" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--policies", "fastest"], "unknown policy 'fastest'; known are auto"),
        (["--policies", "muxwise,,chunked:512"], "unknown policy ''; known are auto"),
        (["--policies", "chunked:1"], "give a token budget from 16"),
        (["--policies", "muxwise,muxwise"], "--policies muxwise is given twice"),
        (["--tbt-ms", "50,2"], "a TBT target of 2 ms is infeasible with h200-llama-8b"),
        (["--tbt-ms", "0"], "'0' is not allowed; give numbers from 1 to 10000 with commas between"),
        (["--tbt-ms", "50,"], "'' is not allowed; give numbers"),
        (["--rates", "0"], "'0' is not allowed; give numbers from 0.0001"),
        (["--rates", "-3"], "'-3' is not allowed"),
        (["--rates", "8,nan"], "'nan' is not allowed"),
        (["--rates", "many"], "'many' is not allowed"),
        (["--seconds", "0"], "--seconds"),
        (["--seeds", "0"], "--seeds"),
        (["--profile", "h300"], "unknown profile 'h300'; shipped are"),
        (["--drop-too-long", "--clip"], "--drop-too-long and --clip cannot be given together"),
        (["--rates", "8", "--doublings", "1"], "--rates and --doublings cannot be given together"),
        (["--rates", "8", "--doublings", "2"], "--rates and --doublings cannot be given together"),
        (["--max-input", "1"], "all 40 requests have more than 1 input tokens"),
        (["--json", "/none/c.json"], "/none/c.json: cannot be written"),
    ],
)
def test_one_line_and_exit_code_2_answer_when_the_command_line_is_wrong(
    trace: Path, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    assert says in refused(capsys, trace, *words)


def test_the_lowest_feasible_target_works_when_it_was_named_by_the_refusal(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, trace, "--policies", "chunked:512", "--tbt-ms", "3")
    lowest = said.rstrip().removesuffix("ms").split()[-1]
    words = ["--policies", "chunked:512", "--rates", "1", "--tbt-ms", lowest, *QUICK]
    assert main(["compare", str(trace), *words]) == 0


@pytest.mark.parametrize("lines", [[], [""]])
def test_the_trace_is_refused_when_it_is_empty(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], lines: list[str]
) -> None:
    assert "trace.jsonl" in refused(capsys, write(tmp_path / "trace.jsonl", *lines))


def test_the_file_is_named_when_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "nowhere.jsonl" in refused(capsys, "nowhere.jsonl")


def test_the_way_out_is_named_when_a_request_is_too_long(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "t.jsonl", mooncake_line(0), mooncake_line(1, 300_000))
    assert "--drop-too-long leaves them out" in refused(capsys, path)


def test_replay_refuses_it_too_when_a_target_is_infeasible(
    trace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(trace), "--tbt-ms", "2"]) == 2
    assert "the lowest feasible target is" in capsys.readouterr().err
