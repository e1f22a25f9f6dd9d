"""The requests of a run, what a client saw judged, and the whole way on the emulated engine."""

import json
import subprocess

import pytest

from experiments import command_of
from gpu_plans import run
from gpu_servers.options import parse_arms
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.load import score
from pdmuxd.daemon.bench.load.client import Seen
from pdmuxd.daemon.bench.load.workload import Cell, Request, build
from pdmuxd.engine.core.errors import InvalidValueError
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.sglang.engine_info import planning_context
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.partition_tables import check_made, make_table, sm_rules_of

TRACES = {
    "conv": [[100 + i, 5] for i in range(500)],
    "mooncake": [[1024 + 10, 5, [0, 1, i + 2]] for i in range(500)],
}


def requests(cell, seed=1, **options):
    return build(Cell.parse(cell), TRACES, seed=seed, duration_s=20.0, **options)


def seen(*, ttft_s, gaps_s, new_tokens=100, outcome="done"):
    request = Request(
        at_s=0.0, input_tokens=new_tokens, new_tokens=new_tokens, output_tokens=9, blocks=("a",)
    )
    tokens = 0 if ttft_s is None else 1 + len(gaps_s)
    return Seen(request, ttft_s=ttft_s, gaps_s=list(gaps_s), tokens=tokens, outcome=outcome, waited_s=0.5)


def good_ratio(*all_seen, tbt_ms=50.0):
    return score.summary(score.record(all_seen), tbt_ms=tbt_ms)["good_ratio"]


@pytest.mark.parametrize("cell", ["conv:5", "mooncake:5"])
def test_arms_get_the_same_requests_when_the_seed_is_the_same(cell):
    assert requests(cell) == requests(cell)
    assert requests(cell) != requests(cell, seed=2)


def test_arrivals_come_at_the_rate_when_the_run_is_long():
    assert 70 <= len(requests("conv:5")) <= 130


def test_a_prompt_is_as_long_as_the_trace_says_and_shares_what_it_says():
    first, second = requests("mooncake:5")[:2]
    bodies = [json.loads(r.body(rid="r", vocab=512, tenant=False))["input_ids"] for r in (first, second)]
    assert [len(body) for body in bodies] == [1034, 1034]
    assert bodies[0][:1024] == bodies[1][:1024]
    assert bodies[0][1024:] != bodies[1][1024:]
    assert (first.new_tokens, second.new_tokens) == (1034, 10)


def test_some_clients_leave_when_a_ratio_of_them_shall():
    leaving = [r for r in requests("conv:5", leave_ratio=0.5) if r.leave_after_tokens is not None]
    assert 0.3 < len(leaving) / len(requests("conv:5")) < 0.7


def test_a_request_is_good_when_first_token_and_gaps_are_in_time():
    assert good_ratio(seen(ttft_s=0.9, gaps_s=[0.04, 0.049])) == 1.0
    assert good_ratio(seen(ttft_s=1.09, gaps_s=[0.04])) == 1.0
    assert good_ratio(seen(ttft_s=1.11, gaps_s=[0.04])) == 0.0
    assert good_ratio(seen(ttft_s=3.9, gaps_s=[0.04], new_tokens=3000)) == 1.0
    assert good_ratio(seen(ttft_s=4.1, gaps_s=[0.04], new_tokens=3000)) == 0.0
    assert good_ratio(seen(ttft_s=0.1, gaps_s=[0.04, 0.06])) == 0.0


def test_one_late_gap_of_two_hundred_is_forgiven_when_the_p99_is_judged():
    assert good_ratio(seen(ttft_s=0.1, gaps_s=[0.04] * 199 + [0.5])) == 1.0


def forgiven_ratio(*all_seen, tbt_ms=50.0):
    return score.summary(score.record(all_seen), tbt_ms=tbt_ms)["forgiven_ratio"]


def test_the_longest_gap_is_forgiven_and_no_second_one():
    assert forgiven_ratio(seen(ttft_s=0.1, gaps_s=[0.04] * 9 + [0.5])) == 1.0
    assert forgiven_ratio(seen(ttft_s=0.1, gaps_s=[0.5])) == 1.0
    assert forgiven_ratio(seen(ttft_s=0.1, gaps_s=[0.04] * 8 + [0.5] * 2)) == 0.0
    assert forgiven_ratio(seen(ttft_s=1.2, gaps_s=[0.04])) == 0.0
    assert forgiven_ratio(seen(ttft_s=None, gaps_s=[], outcome="error")) == 0.0
    assert forgiven_ratio(seen(ttft_s=None, gaps_s=[], outcome="cut")) is None


def test_nothing_is_said_of_forgiving_when_rows_do_not_tell_of_the_other_gaps():
    before = score.record([seen(ttft_s=0.1, gaps_s=[0.04, 0.5])])
    before["rows"][0].pop()
    assert score.summary(before, tbt_ms=50.0)["forgiven_ratio"] is None


def test_the_wait_for_a_next_token_counts_when_a_request_was_cut_in_it():
    waiting = seen(ttft_s=0.1, gaps_s=[], outcome="cut")
    assert (good_ratio(waiting, tbt_ms=390.0), good_ratio(waiting, tbt_ms=410.0)) == (0.0, 1.0)
    behind = seen(ttft_s=0.1, gaps_s=[0.02] * 10, outcome="cut")
    assert (good_ratio(behind, tbt_ms=190.0), good_ratio(behind, tbt_ms=210.0)) == (0.0, 1.0)
    assert good_ratio(seen(ttft_s=0.1, gaps_s=[0.02] * 10)) == 1.0
    before = score.record([waiting])
    before["rows"][0][6] = None  # as it was kept once
    assert score.summary(before, tbt_ms=390.0)["good_ratio"] == 0.0


def test_a_request_is_left_out_when_it_was_cut_before_its_first_token_was_due():
    cut = seen(ttft_s=None, gaps_s=[], outcome="cut")
    assert good_ratio(cut) is None
    assert good_ratio(cut, seen(ttft_s=None, gaps_s=[], outcome="error")) == 0.0


def test_a_static_split_keeps_its_comma_when_arms_are_listed():
    names = [arm.name for arm in parse_arms("stock,ours:static:96,36,chunk-512")]
    assert names == ["stock", "ours:static:96,36", "chunk-512"]


def test_an_unknown_arm_is_refused_when_it_is_named():
    with pytest.raises(InvalidValueError, match="chunk-x"):
        parse_arms("chunk-x")


def test_policies_with_splits_of_their_own_have_a_server_that_makes_them():
    names = (
        "auto",
        "slack/chunked:1024",
        "muxwise:preempt",
        "static:116,16",
        "duet",
        "drift",
        "static:112,20",
    )
    servers = [Arm(name=f"ours:{name}").server for name in names]
    assert servers == ["ours"] * 4 + ["ours-duet"] * 3
    assert Arm(name="chunk-512").server == "chunk-512"
    rules = sm_rules_of(132, capability=9)
    for name in names:
        started = PluginEnvironment(
            policy="duet" if Arm(name=f"ours:{name}").server == "ours-duet" else "auto",
            link=None,
            partitions=None,
        )
        made = make_table(rules, started)
        check_made(name, build_policy(name, planning_context(rules, made.splits)).table.splits, made)


def test_arms_without_targets_run_once_when_two_targets_are_asked_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = "--model tiny --arms stock,ours:auto --cells conv:1 --tbt-ms 20,50 --seeds 1"
    runs = run.plan(run.options_of(words.split()))
    assert [(one.arm.name, one.tbt_ms) for one in runs] == [
        ("stock", None),
        ("ours:auto", 20.0),
        ("ours:auto", 50.0),
    ]


def test_the_other_arms_are_measured_when_one_is_refused(tmp_path):
    (tmp_path / "traces.json").write_text(json.dumps(TRACES))
    words = "--model llama-8b --cells conv:8 --tbt-ms 50 --seeds 1 --duration-s 1 --drain-s 2 --cpu"
    command = [*command_of("run"), *words.split()]
    command += ["--arms", "emulator:static:1,2,emulator:muxwise"]
    command += ["--traces", "traces.json", "--results", "r.jsonl", "--work", "m", "--log-dir", "l"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 1
    assert "FAILED emulator:static:1,2: the engine refused static:1,2" in done.stdout
    (result,) = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert result["key"][1] == "emulator:muxwise"


def test_a_run_goes_on_where_it_was_when_time_was_up(tmp_path):
    (tmp_path / "traces.json").write_text(json.dumps(TRACES))
    words = "--model llama-8b --arms emulator:muxwise --cells conv:8 --tbt-ms 50 --seeds 1,2 --duration-s 1"
    command = [*command_of("run"), *words.split(), "--drain-s", "20", "--cpu"]
    command += ["--traces", "traces.json", "--results", "r.jsonl", "--work", "m", "--log-dir", "l"]

    def go(budget_s):
        finished = subprocess.run(
            [*command, "--budget-s", str(budget_s)], cwd=tmp_path, capture_output=True, text=True, timeout=250
        )
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout.splitlines()[-1]

    assert go(10) == "left: 2 runs"
    assert go(300) == "left: 0 runs"
    results = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert [result["key"][3] for result in results] == [1, 2]
    assert all(row[8] == "done" for result in results for row in result["rows"])
    assert all(result["engine"]["steps_total"] > 0 for result in results)
    assert go(300) == "left: 0 runs"
    assert len((tmp_path / "r.jsonl").read_text().splitlines()) == 2


def test_a_run_without_requests_is_refused_when_its_rate_is_too_low_for_its_time(tmp_path):
    (tmp_path / "traces.json").write_text(json.dumps(TRACES))
    words = "--model llama-8b --arms emulator:muxwise --cells conv:0.001 --tbt-ms 50 --seeds 1 --cpu"
    command = [*command_of("run"), *words.split(), "--duration-s", "1", "--drain-s", "2"]
    command += ["--traces", "traces.json", "--results", "r.jsonl", "--work", "m", "--log-dir", "l"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=250)
    assert done.returncode == 1
    assert "FAILED emulator:muxwise: conv:0.001: no request arrives within 1 s" in done.stdout
    assert not (tmp_path / "r.jsonl").exists()
