"""Whether pdmuxd pays: what is asked, what is measured, and the sentence that comes of it."""

import json
import os
import resource
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pdmuxd.daemon.bench.decide import page, reading, table
from pdmuxd.daemon.bench.decide.verdict import outcome_of, verdict
from pdmuxd.daemon.bench.decide.wanted import claim
from pdmuxd.daemon.bench.load.workload import Cell
from pdmuxd.daemon.bench.models import model_in
from pdmuxd.daemon.bench.results import append_result, read_results
from pdmuxd.daemon.cli.main import main
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, TraceError

GIVEN = reading.Given(
    engine="emulated",
    model=None,
    arms="stock,chunk-512,ours:auto",
    profile=None,
    tp_size=1,
    python=None,
    sglang_args="",
    trace=None,
    trace_format=None,
    load="chat",
    rates="10,20",
    tbt_ms="50",
    ttft_fixed_ms=1000.0,
    ttft_per_1k_ms=1000.0,
    attainment=0.99,
    seeds="1",
    duration_s=10.0,
    drain_s=2.0,
)


def wanted(**changes):
    return reading.read(replace(GIVEN, **changes))


def result_of(run, good):
    """A run of ten requests, so many of them good."""
    rows = [
        [100, 100, 0, 5, 100.0 if number < good else 9000.0, 1100.0, 10.0, 200.0, "done"]
        for number in range(10)
    ]
    kept = {"key": run.key, "rows": rows, "gaps": [[20, 100]], "errors": [], "busy_s": 1.0, "duration_s": 1.0}
    return kept if run.build is None else kept | {"build": run.build}


def found(of, good_by_arm):
    """Each arm's good requests of ten at the first and the second rate; None was not measured."""
    runs = of.runs()
    results = [
        result_of(run, good)
        for run in runs
        if (good := good_by_arm[of.name_of(run.arm.name)][of.rates.index(run.cell.rate)]) is not None
    ]
    return outcome_of(of, results, runs)


def said(good_by_arm, **changes):
    of = wanted(**changes)
    return verdict(of, found(of, good_by_arm))


def test_it_pays_when_more_requests_are_good_than_under_the_best_rival():
    text = said({"stock": (10, 2), "chunk-512": (10, 7), "ours:auto": (10, 9)}, rates="1,2")
    assert text == (
        "pdmuxd makes no difference on the emulated llama-8b: ours:auto serves at most 10 good requests a "
        "second, the best of SGLang's own, stock, 10 (+0%)."
    )
    text = said({"stock": (5, 2), "chunk-512": (5, 7), "ours:auto": (5, 9)}, rates="1,2")
    assert text.startswith("pdmuxd pays on the emulated llama-8b: ours:auto serves at most 9 good requests a")
    assert "the best of SGLang's own, chunk-512, 7 (+29%)." in text
    assert text.endswith("No engine keeps its targets at any of these rates.")


def test_it_does_not_pay_when_a_rival_serves_more():
    text = said({"stock": (9, 8), "chunk-512": (1, 1), "ours:auto": (6, 6)})
    assert text.startswith("pdmuxd does not pay")
    assert "stock, 9 (-33%)" in text


@pytest.mark.parametrize(
    ("good", "why"),
    [
        ({"stock": (10, 10), "chunk-512": (10, 10), "ours:auto": (10, 10)}, "measure higher --rates"),
        ({"stock": (0, 0), "chunk-512": (0, 0), "ours:auto": (0, 0)}, "measure lower --rates"),
        ({"stock": (9, 9), "chunk-512": (9, 9), "ours:auto": (None, None)}, "nothing of pdmuxd is measured"),
    ],
)
def test_nothing_is_decided_when_the_rates_do_not_tell(good, why):
    text = said(good)
    assert "Not decided" in text
    assert why in text


def test_the_verdict_says_how_much_is_missing_when_it_was_broken_off():
    text = said({"stock": (9, None), "chunk-512": (None, None), "ours:auto": (5, None)})
    assert text.startswith("So far, with 2 of 6 runs: pdmuxd does not pay")


def test_each_target_has_a_verdict_when_several_are_given():
    text = said({"stock": (5, 5), "chunk-512": (5, 5), "ours:auto": (9, 9)}, tbt_ms="20,50")
    assert text.count("pdmuxd pays") == 2
    assert "at TBT 20 ms" in text


def test_results_of_another_build_do_not_count():
    of = wanted()
    runs = of.runs()
    results = [result_of(run, 9) for run in runs]
    for one in results:
        if "build" in one:
            one["build"] = "another"
    assert outcome_of(of, results, runs).done == len([run for run in runs if run.build is None])


def test_page_and_table_show_every_engine_at_every_rate():
    of = wanted(tbt_ms="20,50")
    outcome = found(of, {"stock": (5, 5), "chunk-512": (5, 5), "ours:auto": (9, 10)})
    html = page.render(of, outcome, gpu="none", command="pdmuxd bench", version="1", created_at="now")
    assert '<p class="verdict">pdmuxd pays' in html
    assert html.count('<th scope="row">') == 12
    assert 'class="met"' in html
    assert 'class="missed"' in html
    assert sum(len(section.rows) for section in table.table(of, outcome).sections) == 12


ROWS = [
    {"arrival_ms": 1000.0 * at_s, "tenant": "t", "input_tokens": 600 + number, "output_tokens": 5}
    | ({"prefix_ids": [1, 2], "block_tokens": 256} if number < 2 else {})
    for number, at_s in enumerate((0.0, 1.0, 1.5, 4.0))
]


@pytest.fixture
def trace(tmp_path):
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


def test_a_trace_is_stretched_to_the_rate_and_begins_again_at_its_end(trace):
    load = wanted(load=None, trace=trace, rates="1").load
    # Three pauses of 4 s in all: at one a second they take three quarters of that.
    times = [request.at_s for request in load.requests(Cell(workload="trace", rate=1.0), seed=1)]
    assert times[:5] == pytest.approx([0.0, 0.75 * 1.0, 0.75 * 1.5, 0.75 * 4.0, 0.75 * 4.0 + 1.0])
    assert 9.0 <= times[-1] < 10.0
    twice = [request.at_s for request in load.requests(Cell(workload="trace", rate=2.0), seed=1)]
    assert twice[:3] == pytest.approx([at_s / 2.0 for at_s in times[:3]])


def test_prefixes_that_a_trace_shares_are_the_same_text(trace):
    load = wanted(load=None, trace=trace, rates="1").load
    first, second = load.requests(Cell(workload="trace", rate=1.0), seed=1)[:2]
    bodies = [json.loads(one.body(rid="r", vocab=600, tenant=True))["input_ids"] for one in (first, second)]
    assert [len(body) for body in bodies] == [600, 601]
    assert bodies[0][:512] == bodies[1][:512]
    assert bodies[0][512:] != bodies[1][512:600]
    assert (first.new_tokens, second.new_tokens) == (600, 601 - 512)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"arms": "stock"}, "--arms"),
        ({"arms": "stock,stock,ours:auto"}, "--arms"),
        ({"arms": "chunk-512,ours:auto,ours:chunked:512"}, "--arms"),
        ({"arms": "emulator:auto,stock"}, "--arms"),
        ({"rates": "0"}, "--rates"),
        ({"rates": "1,1"}, "--rates"),
        ({"rates": "10000", "duration_s": 1000.0}, "--rates"),
        ({"rates": "0.01"}, "--rates"),
        ({"tbt_ms": "x"}, "--tbt-ms"),
        ({"seeds": "0"}, "--seeds"),
        ({"load": "nothing"}, "--load"),
        ({"trace": Path("t"), "load": "chat"}, "--load"),
        ({"engine": "sglang"}, "--model"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_the_options_name(changes, field):
    with pytest.raises(InvalidValueError, match=field):
        wanted(**changes)


def test_a_trace_that_no_model_holds_is_refused(trace):
    trace.write_text("".join(json.dumps(row | {"input_tokens": 9_000_000}) + "\n" for row in ROWS[2:]))
    with pytest.raises(TraceError, match="every request is longer"):
        wanted(load=None, trace=trace)


@pytest.mark.parametrize("text", ["no json", "[]", "{}", '{"vocab_size": 7}'])
def test_a_folder_that_is_no_model_is_refused(tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(InvalidValueError, match=r"config\.json"):
        model_in(tmp_path)


def test_a_models_weights_are_made_up_only_where_there_are_none(tmp_path):
    (tmp_path / "config.json").write_text('{"text_config": {"vocab_size": 600}}')
    assert "dummy" in model_in(tmp_path).flags
    (tmp_path / "model.safetensors").touch()
    assert model_in(tmp_path).flags == ()


def test_a_folder_with_results_of_something_else_is_refused(tmp_path):
    claim(tmp_path, wanted())
    claim(tmp_path, wanted(rates="5", seeds="2"))
    with pytest.raises(ConflictError, match=r"duration_s 10\.0, and now it is 20\.0"):
        claim(tmp_path, wanted(duration_s=20.0))


def test_a_result_stands_alone_when_the_one_before_it_was_cut_off(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"a": 1}\n{"b":')
    append_result(path, {"c": 3})
    append_result(path, {"d": 4})
    assert list(read_results(path)) == [{"a": 1}, {"c": 3}, {"d": 4}]


def test_there_is_one_line_and_exit_code_2_when_there_is_no_gpu(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text('{"vocab_size": 600}')
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["bench", "--model", str(tmp_path), "--python", sys.executable]) == 2
    assert "there is no GPU here" in capsys.readouterr().err


def test_there_is_one_line_and_exit_code_2_when_sglang_is_missing(tmp_path, monkeypatch, capsys):
    (tmp_path / "config.json").write_text('{"vocab_size": 600}')
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho 7\n")
    smi.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert main(["bench", "--model", str(tmp_path), "--python", sys.executable]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith("error: SGLang cannot be started with")


def test_the_plan_and_its_time_are_told_and_nothing_is_started_in_a_dry_run(tmp_path, capsys):
    out = tmp_path / "out"
    words = f"bench --engine emulated --rates 10,20 --duration-s 10 --drain-s 2 --out {out} --dry-run"
    assert main(words.split()) == 0
    said = capsys.readouterr().out
    assert "ours:auto: 20 requests/s, seed 1, TBT 50 ms" in said
    assert "12 of 12 runs are left, about 0:03:22 in all" in said
    assert not out.exists()


COMMAND = [sys.executable, "-P", "-m", "pdmuxd.daemon.cli.main", "bench", "--engine", "emulated"]
WORDS = ["--arms", "stock,ours:auto", "--load", "chat", "--duration-s", "2", "--drain-s", "1", "--out", "out"]


def servers_in(folder):
    """Processes that were started in a folder, by what they are."""
    running = psutil.process_iter(["cwd", "cmdline"])
    return [one.info["cmdline"] for one in running if one.info["cwd"] == str(folder.resolve())]


@pytest.mark.slow
@pytest.mark.e2e
def test_a_bench_goes_on_where_ctrl_c_ended_it_and_nothing_is_left_running(tmp_path):
    command = [*COMMAND, *WORDS, "--rates", "5,10"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    for line in process.stderr:
        if "good" in line:  # the first run has ended, the second is under way
            process.send_signal(signal.SIGINT)
            break
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "the same command goes on" in err
    assert out.startswith("So far, with 1 of 4 runs")
    assert servers_in(tmp_path) == []
    first = (tmp_path / "out" / "results.jsonl").read_text()
    again = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "out" / "results.jsonl").read_text().startswith(first)
    assert len((tmp_path / "out" / "results.jsonl").read_text().splitlines()) == 4
    assert "So far" not in again.stdout
    assert '<p class="verdict">' in (tmp_path / "out" / "report.html").read_text()
    assert servers_in(tmp_path) == []


@pytest.mark.slow
@pytest.mark.e2e
def test_there_is_one_line_and_exit_code_2_when_the_disk_is_full(tmp_path):
    def small_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    done = subprocess.run(
        [*COMMAND, *WORDS, "--rates", "60"],
        cwd=tmp_path,
        # Else the compiled modules that Python cuts short would stay for every other process.
        env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=200,
        preexec_fn=small_files,
    )
    assert done.returncode == 2, done.stdout + done.stderr
    assert done.stderr.splitlines()[-1].startswith("error: --out out: ")
    assert "the same command goes on" in done.stderr
    assert "Traceback" not in done.stderr
    assert servers_in(tmp_path) == []
