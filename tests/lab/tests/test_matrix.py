"""In which order a session measures, what it repeats, and what its budget holds."""

import itertools
import json
import subprocess

import pytest

from experiments import command_of
from gpu_plans import anchors, matrix, table
from pdmuxd.daemon.bench.results import done_in

TRACES = {
    "conv": [[100 + i, 5] for i in range(500)],
    "mooncake": [[1024 + 10, 5, [0, 1, i + 2]] for i in range(500)],
}
ROUNDS = [
    matrix.Round(model="llama-8b", arms="ours:auto,stock", cells="conv:1", tbt_ms=(20.0, 50.0), seeds=(1,)),
    matrix.Round(model="llama-8b", arms="ours:auto,stock", cells="conv:1", tbt_ms=(20.0, 50.0), seeds=(2,)),
]


def servers(ordered):
    return [server for server, _ in itertools.groupby(run.server[2] for run in ordered)]


def test_the_server_that_is_up_goes_on_when_the_next_round_begins():
    ordered = matrix.in_order(ROUNDS, set())
    assert servers(ordered) == ["ours", "stock", "ours"]
    assert [run.seed for run in ordered] == [1, 1, 1, 2, 2, 2]


def test_a_run_is_left_out_when_its_result_is_there():
    first = matrix.in_order(ROUNDS, set())
    left = matrix.in_order(ROUNDS, {first[0].name})
    assert left == first[1:]


def test_a_run_is_measured_once_when_two_rounds_want_it():
    once = matrix.in_order(ROUNDS, set())
    assert matrix.in_order([*ROUNDS, *ROUNDS], set()) == once


def test_each_model_is_anchored_when_an_earlier_session_measured_it():
    done = {matrix.anchor(ROUNDS, "llama-8b", 1).name}
    ordered = matrix.in_order(ROUNDS, done)
    assert [run.arm.name for run in ordered if run.is_anchor] == ["chunk-512"]
    assert ordered[0].is_anchor
    assert not any(run.is_anchor for run in matrix.in_order(ROUNDS, done, anchored=False))


def test_nothing_is_anchored_when_the_anchor_was_never_measured():
    assert not any(run.is_anchor for run in matrix.in_order(ROUNDS, set()))


def test_the_anchor_costs_no_start_when_its_server_is_wanted_anyway():
    done = {matrix.anchor(matrix.ROUNDS, "llama-8b", 1).name}
    ordered = matrix.in_order(matrix.ROUNDS[:1], done)
    number = next(i for i, run in enumerate(ordered) if run.is_anchor)
    assert ordered[number].server == ordered[number + 1].server
    assert servers(ordered).count("chunk-512") == 1


def test_nothing_is_left_when_all_is_done():
    done = {run.name for run in matrix.in_order(matrix.ROUNDS, set())}
    assert matrix.in_order(matrix.ROUNDS, done) == []


@pytest.mark.parametrize(("budget_s", "runs"), [(184.0, 0), (186.0, 1), (228.0, 2), (1e9, 6)])
def test_only_what_fits_is_planned_when_the_budget_is_short(budget_s, runs):
    options = matrix.Options(duration_s=30.0, drain_s=8.0, budget_s=budget_s, no_ahead=False)
    ordered = matrix.in_order(ROUNDS, set())
    assert len(list(matrix.within(ordered, options))) == runs


def result(arm="chunk-512", *, session="a", tokens=1000, build=None, ttft_ms=100.0):
    row = [tokens, tokens, 0, 5, ttft_ms, 1000.0, 10.0, 200.0, "done"]
    found = {
        "key": ["llama-8b", arm, "conv:20", 1, None],
        "session": session,
        "rows": [row] * 4,
        "gaps": [[20, 100]],
        "errors": [],
        "busy_s": 1.0,
        "duration_s": 1.0,
    }
    return found | ({"build": build} if build else {})


def test_sessions_agree_when_the_anchor_is_within_five_percent():
    (said,) = anchors.agreement([result(), result(session="b", tokens=1040)])
    assert "input tokens/s +4.0%" in said
    assert said.endswith("agrees")


def test_sessions_of_older_files_are_compared_when_they_are_named_otherwise():
    older = result(session="a")
    older[anchors.FORMERLY] = older.pop("session")
    (said,) = anchors.agreement([older, result(session="b", tokens=1040)])
    assert "b against a" in said


def test_sessions_differ_when_the_anchor_is_not_within_five_percent():
    (said,) = anchors.agreement([result(), result(session="b", ttft_ms=106.0)])
    assert "TTFT p50 +6.0%" in said
    assert "do not compare" in said


def test_nothing_is_known_when_no_run_was_repeated():
    (said,) = anchors.agreement([result(), result(session="b", arm="stock")])
    assert said.endswith("is not known")


def test_a_repeated_run_counts_once_and_the_last_build_wins():
    results = [
        result(),
        result(session="b"),
        result("ours:auto", build="1"),
        result("ours:auto", build="2"),
    ]
    assert [(one["key"][1], one["session"], one.get("build")) for one in table.counted(results)] == [
        ("chunk-512", "a", None),
        ("ours:auto", "a", "2"),
    ]


def test_a_cell_is_judged_against_its_best_rival():
    slow = result("ours:auto", ttft_ms=2000.0)
    rows = table.verdicts([result(), slow], "llama-8b", "conv:20", 50.0)
    assert len(rows) == 1
    assert "| 100.0% | 100.0% | 99% | 0.00 (chunk-512) | 1 |" in rows[0]


def sit(folder, *words):
    (folder / "traces.json").write_text(json.dumps(TRACES))
    command = [*command_of("matrix"), "--as-model", "llama-8b", "--rounds", "1", "--cpu"]
    command += ["--duration-s", "1", "--drain-s", "2", "--traces", "traces.json", "--results", "r.jsonl"]
    command += ["--work", "m", "--log-dir", "l", "--no-anchor", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=250)


def test_a_session_goes_on_where_the_last_one_ended(tmp_path):
    first = sit(tmp_path, "--only-arms", "emulator:static:96,36")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "left: 0 runs" in first.stdout
    arms = ["--only-arms", "emulator:auto,emulator:static:96,36"]
    assert "4 of 4 runs fit" in sit(tmp_path, *arms, "--plan").stdout
    assert sit(tmp_path, *arms, "--budget-s", "10").stdout.splitlines()[-1] == "left: 4 runs"
    assert sit(tmp_path, *arms).stdout.splitlines()[-1] == "left: 0 runs"
    assert len(done_in(tmp_path / "r.jsonl")) == len((tmp_path / "r.jsonl").read_text().splitlines()) == 6
    said = subprocess.run([*command_of("table"), "r.jsonl"], cwd=tmp_path, capture_output=True, text=True)
    assert said.returncode == 0, said.stderr
    assert "| emulator:auto |" in said.stdout


def decoding(arm, gap_ms):
    row = [64, 64, 0, 101, 20.0, 1000.0, gap_ms, 20.0 + 100 * gap_ms, "done"]
    return result(arm) | {"key": ["llama-8b", arm, "decode:1", 1, None], "rows": [row]}


def test_a_decode_step_is_compared_with_stocks():
    runs = [decoding("stock", 5.0), decoding("ours:auto", 5.1), decoding("chunk-512", 6.0)]
    (said,) = table.steps(runs, "llama-8b", "decode:1")
    assert said.startswith("llama-8b decode:1 ours:auto: a step of 5.100 ms against stock's 5.000: 1.020")


def test_no_step_is_compared_when_stock_was_not_measured():
    assert table.steps([decoding("ours:auto", 5.1)], "llama-8b", "decode:1") == []


def test_every_run_is_measured_once_when_two_gpus_share_the_work(tmp_path):
    words = ["--only-arms", "emulator:static:96,36", "--rounds", "5", "--gpus", "2"]
    both = sit(tmp_path, *words)
    assert both.returncode == 0, both.stdout + both.stderr
    assert {line[:6] for line in both.stdout.splitlines()} == {"gpu 0 ", "gpu 1 "}
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert len(done_in(tmp_path / "r.jsonl")) == len(lines) == 8


def test_the_worst_run_of_each_arm_says_what_the_host_delayed():
    runs = [
        {"key": ["m", arm, "conv:20", 1, 50.0], "engine": {"host": {"delayed_ratio": ratio}}}
        for arm, ratio in (("ours:auto", 0.004), ("ours:auto", 0.012), ("ours:muxwise", 0.0))
    ]
    runs.append({"key": ["m", "stock", "conv:20", 1, 50.0]})
    first, second = table.host(runs, "m", "conv:20")
    assert first.startswith("m conv:20 ours:auto: the host delayed 1.2% of the steps in the worst run")
    assert second.startswith("m conv:20 ours:muxwise: the host delayed 0.0%")
