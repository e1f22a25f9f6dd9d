"""What is decided when a request arrives: its length, its text and where it stops."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import RequestError
from pdmuxd.engine.emulator.server.bodies import Call, Sampling
from pdmuxd.engine.emulator.server.planning import Plan, natural_length, plan
from pdmuxd.engine.emulator.server.tokenizer import token_ids

SAMPLING = Sampling(max_tokens=None, min_tokens=0, ignore_eos=False, stops=(), keep_stop=False, seed=0)
CALL = Call(rid=None, tenant="t", prompts=(), prompt_param="prompt", sampling=SAMPLING, salt="", stream=False)


def planned(prompt: str | list[int] = "a prompt", *, context: int = 4096, **sampling: object) -> Plan:
    call = replace(CALL, sampling=replace(SAMPLING, **sampling))  # type: ignore[arg-type]
    return plan(call, prompt, block_tokens=16, max_context_tokens=context)


def text_of(planned: Plan) -> str:
    return b"".join(planned.pieces).decode()


def test_natural_lengths_are_around_the_median_when_there_are_many() -> None:
    lengths = [natural_length(planned(f"prompt {i}").block_keys[-1]) for i in range(2000)]
    assert 135 < median(lengths) < 165
    assert min(lengths) >= 1
    assert max(lengths) < 150 * 40


def test_a_prompt_gets_the_same_answer_when_it_is_repeated() -> None:
    assert planned("again", max_tokens=500) == planned("again", max_tokens=500)
    assert planned("again", max_tokens=500, seed=1).pieces != planned("again", max_tokens=500).pieces
    assert planned("other", max_tokens=500).pieces != planned("again", max_tokens=500).pieces


@pytest.mark.parametrize("words", [3, 16, 40])
def test_a_prompt_that_repeats_an_answer_has_its_blocks(words: int) -> None:
    prompt = " ".join(["word"] * words) + "\n"
    first = planned(prompt, max_tokens=100, ignore_eos=True)
    then = planned(prompt + text_of(first) + "\nand then", max_tokens=1)
    full = first.prompt_tokens // 16
    known = (*first.block_keys[:full], *first.answer_keys)
    assert len(known) == (first.prompt_tokens + 99) // 16
    assert then.block_keys[: len(known)] == known


def test_the_default_limit_holds_when_none_is_given() -> None:
    assert planned(ignore_eos=True).max_tokens == 128
    assert planned(ignore_eos=True, min_tokens=200).max_tokens == 200


def test_the_context_bounds_the_answer_when_little_of_it_is_left() -> None:
    ids = list(range(90))
    bounded = planned(ids, context=100, max_tokens=5000, ignore_eos=True)
    assert (bounded.prompt_tokens, len(bounded.pieces), bounded.finish_reason) == (90, 10, "length")


@pytest.mark.parametrize("length", [100, 101, 5000])
def test_a_prompt_is_refused_with_both_numbers_when_it_fills_the_context(length: int) -> None:
    with pytest.raises(RequestError, match=rf"{length} tokens.* length is 100 tokens") as refusal:
        planned(list(range(length)), context=100)
    assert (refusal.value.status, refusal.value.code) == (400, "context_length_exceeded")


def test_a_text_is_refused_unread_when_it_cannot_fit() -> None:
    with pytest.raises(RequestError, match="at least 125 tokens"):
        planned("x" * 1000, context=100)


def test_a_prompt_is_refused_when_it_is_empty() -> None:
    with pytest.raises(RequestError, match="`prompt` is empty"):
        planned("")


def test_limits_are_refused_when_the_least_is_above_the_most() -> None:
    with pytest.raises(
        RequestError, match="`min_tokens` is 9; it must not exceed `max_tokens`, 8"
    ) as refusal:
        planned(min_tokens=9, max_tokens=8)
    assert refusal.value.param == "min_tokens"
    with pytest.raises(RequestError) as refusal:
        planned(min_tokens=9, max_tokens=8, limit_param="sampling_params.max_new_tokens")
    assert refusal.value.param == "sampling_params.min_new_tokens"


@given(
    prompt=st.text(min_size=1, max_size=20),
    stops=st.lists(st.sampled_from([".", ", ", "e", " the", "ne b", "zzz", " "]), min_size=1, max_size=3),
    most=st.integers(1, 200),
    least=st.integers(0, 200),
    keep=st.booleans(),
)
def test_the_answer_ends_at_the_first_stop_when_it_contains_one(
    prompt: str, stops: list[str], most: int, least: int, keep: bool
) -> None:
    limits = {"max_tokens": most, "min_tokens": min(least, most), "ignore_eos": True}
    free = planned(prompt, **limits)
    stopped = planned(prompt, **limits, stops=tuple(stops), keep_stop=keep)
    tokens = len(stopped.pieces)
    assert min(least, most) <= tokens <= most
    whole, text = text_of(free), text_of(stopped)
    if stopped.matched_stop is None:
        assert stopped == free
        assert min(least, most) > 1 or not any(stop in whole for stop in stops)
        return
    assert stopped.finish_reason == "stop"
    produced = b"".join(free.pieces[:tokens]).decode()
    assert stopped.matched_stop in stops
    if keep:
        assert text == produced
        assert stopped.matched_stop in text
    else:
        assert produced.startswith(text + stopped.matched_stop)
    if least == 0:
        before = b"".join(free.pieces[: tokens - 1]).decode()
        assert not any(stop in before for stop in stops)


def test_token_ids_and_text_share_a_prefix_when_they_are_the_same_tokens() -> None:
    text = "a prompt that is long enough to have more than one block of sixteen tokens, surely, by now"
    ids = [int(token) for token in token_ids(text)]
    assert planned(ids).block_keys == planned(text).block_keys
    assert len(planned(ids).block_keys) > 1
