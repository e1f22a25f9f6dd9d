"""A matrix on several GPUs: what is compared stays together, and all of it is done once."""

import argparse

import matrix
import pytest
import spread
from runs import done_in
from test_matrix import sit

ORDERED = matrix.in_order(matrix.ROUNDS, set())


def test_all_arms_of_a_model_and_a_seed_are_on_one_gpu():
    divided = spread.divide(ORDERED, 4, len)
    given = [share for own in divided for share in own]
    assert sorted(given) == sorted({spread.share_of(run) for run in ORDERED}), "each once"
    assert len(given) == 6


def test_the_next_share_goes_to_the_gpu_that_is_done_first():
    cost_s = {("llama-8b", 1): 5.0}
    divided = spread.divide(ORDERED, 2, lambda runs: cost_s.get(spread.share_of(runs[0]), 1.0))
    assert divided[0] == [("llama-8b", 1)]
    assert len(divided[1]) == 5


def test_some_gpus_have_nothing_to_do_when_there_is_little():
    one = [run for run in ORDERED if spread.share_of(run) == ("llama-8b", 2)]
    assert spread.divide(one, 3, len) == [[("llama-8b", 2)], [], []]


@pytest.mark.parametrize("text", ["llama-8b", "llama-8b:x", ":1", "", "llama-8b:1,"])
def test_a_share_that_cannot_be_read_is_refused(text):
    with pytest.raises(argparse.ArgumentTypeError, match="MODEL:SEED"):
        spread.shares(text)


def test_every_run_is_measured_once_when_two_gpus_share_the_work(tmp_path):
    words = ["--only-arms", "emulator:static:96,36", "--rounds", "5", "--gpus", "2"]
    both = sit(tmp_path, *words)
    assert both.returncode == 0, both.stdout + both.stderr
    assert {line[:6] for line in both.stdout.splitlines()} == {"gpu 0 ", "gpu 1 "}
    lines = (tmp_path / "r.jsonl").read_text().splitlines()
    assert len(done_in(tmp_path / "r.jsonl")) == len(lines) == 8
