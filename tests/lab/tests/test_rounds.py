"""What is measured first, and whose further seeds can wait."""

import pytest

from gpu_plans import contenders, matrix, rounds


def row(ttft_ms):
    return [1000, 1000, 0, 5, ttft_ms, 1000.0, 10.0, 200.0, "done"]


def result(arm, good, *, cell="conv:20", tbt_ms=None):
    """So many good requests of ten, at every target."""
    rows = [row(100.0)] * good + [row(2000.0)] * (10 - good)
    return {
        "key": ["llama-8b", arm, cell, 1, tbt_ms],
        "rows": rows,
        "gaps": [[20, 100]],
        "errors": [],
        "busy_s": 1.0,
        "duration_s": 1.0,
    }


def test_a_rival_is_out_when_it_is_far_behind_the_best_one():
    results = [result("stock", 4), result("chunk-512", 10), result("chunk-1024", 9)]
    assert contenders.out_of_contention(results) == {("llama-8b", "conv:20", "stock")}


def test_ours_is_never_out():
    results = [result("ours:auto", 1, tbt_ms=20.0), result("chunk-512", 10)]
    assert contenders.out_of_contention(results) == frozenset()


def test_nobody_is_out_when_nobody_was_good():
    assert contenders.out_of_contention([result("stock", 0), result("chunk-512", 0)]) == frozenset()


def test_an_arm_that_is_out_waits_until_everything_else_is_done():
    out = frozenset({("llama-8b", "conv:24", "stock")})
    small = [one for one in rounds.ROUNDS if one.model == "llama-8b"]
    order = [run for run in matrix.in_order(small, set(), out=out) if str(run.cell) == "conv:24"]
    seeds = [(run.arm.name, run.seed) for run in order]
    last_of_others = max(i for i, run in enumerate(order) if run.arm.name == "chunk-512")
    assert seeds.index(("stock", 1)) < last_of_others < seeds.index(("stock", 2))
    assert set(order) == {run for run in matrix.in_order(small, set()) if str(run.cell) == "conv:24"}


def test_every_rival_has_a_seed_on_two_cells_before_any_has_a_second():
    small = [one for one in rounds.ROUNDS[: rounds.FIRST_TABLE] if one.model == "llama-8b"]
    runs = matrix.in_order(small, set())
    compared = {(run.arm.name, str(run.cell)) for run in runs if run.seed == 1}
    rivals = ("stock", "chunk-256", "chunk-512", "chunk-1024", "chunk-2048", "pdmux", "ours:static:80,52")
    for cell in ("conv:24", "mooncake:2.5"):
        assert {(rival, cell) for rival in (*rivals, "ours:auto")} <= compared
    assert {run.cell.workload for run in runs if run.seed > 1} == {"decode"}


@pytest.mark.parametrize("arm", rounds.LOW_LOAD_ARMS)
def test_steps_alone_are_measured_on_a_server_that_is_up_anyway(arm):
    runs = matrix.in_order(rounds.ROUNDS[: rounds.FIRST_TABLE], set())
    alone = [i for i, run in enumerate(runs) if run.cell.workload == "decode" and run.arm.name == arm]
    assert alone
    for i in alone:
        assert runs[i - 1].server == runs[i].server


def test_a_run_of_steps_alone_is_short_when_a_budget_is_planned():
    options = matrix.Options(duration_s=30.0, drain_s=8.0)
    runs = matrix.in_order(rounds.ROUNDS[:1], set())
    short = [run for run in runs if run.cell.workload == "decode"]
    long = [run for run in runs if run.cell.workload != "decode"]
    assert max(matrix.run_s(run, options) for run in short) < min(matrix.run_s(run, options) for run in long)
