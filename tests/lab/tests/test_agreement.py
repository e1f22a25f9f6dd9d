"""When answers under load agree with those of an idle engine."""

import pytest

from gpu_plans import agreement
from gpu_plans.agreement import TIE, Agreement, Answer

ALONE = Answer(tokens=(5, 6, 7), margins=(1.0, TIE / 2, 2.0))


def compared(*answers):
    found = Agreement()
    for tokens in answers:
        found.add(ALONE, tokens)
    return found


def test_an_answer_is_the_same_when_every_token_is():
    assert compared((5, 6, 7)) == Agreement(same=1)


def test_a_first_difference_is_a_tie_when_both_tokens_were_nearly_as_likely():
    assert compared((5, 9, 1)) == Agreement(ties=1, widest=TIE / 2)


@pytest.mark.parametrize("tokens", [(9, 6, 7), (5, 6, 9)])
def test_a_first_difference_is_wrong_when_the_token_was_clearly_ahead(tokens):
    assert compared(tokens).wrong == 1


@pytest.mark.parametrize("tokens", [(), (5, 6), (5, 6, 7, 8)])
def test_an_answer_of_another_length_is_wrong(tokens):
    assert compared(tokens).wrong == 1


def found(**policies):
    return {"policies": policies}


GOOD = {"same": 60, "ties": 30, "wrong": 0, "widest": 0.1, "misshapen": 0, "steps": {"split": 9}}


def test_it_passes_when_most_are_the_same_and_none_is_wrong():
    assert agreement.is_met(found(auto=GOOD))


@pytest.mark.parametrize("changes", [{"wrong": 1}, {"misshapen": 1}, {"same": 10, "ties": 80}])
def test_it_fails_when_one_is_wrong_or_most_differ(changes):
    assert not agreement.is_met(found(auto=GOOD, muxwise=GOOD | changes))


def test_it_fails_when_nothing_was_compared():
    assert not agreement.is_met(found())


def test_prompts_are_of_all_lengths_and_some_begin_alike():
    prompts = agreement.prompts_of(96, longest=6000, vocab=512)
    sizes = sorted(map(len, prompts))
    assert (sizes[0] < 10, sizes[-1] > 3000) == (True, True)
    assert prompts == agreement.prompts_of(96, longest=6000, vocab=512)
    begin = min(len(prompts[0]), len(prompts[1]) // 2)
    assert prompts[1][:begin] == prompts[0][:begin]
    assert all(3 <= token < 512 for prompt in prompts for token in prompt)
