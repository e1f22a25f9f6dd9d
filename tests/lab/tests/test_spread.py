"""A matrix on several GPUs: what is compared stays together, and all of it is done once."""

import argparse

import pytest

from gpu_plans import matrix, spread

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
