"""Which request goes which way: the table of docs/sglang.md, row by row, over sets of options."""

import itertools
import json
import re
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.gateway.contract.tables import TABLES
from pdmuxd.daemon.gateway.requests import TOKENS_PARAM, rewrite
from pdmuxd.daemon.gateway.routes import Kind

PAGE = Path(__file__).parents[3] / "docs" / "sglang.md"
ASKED = {
    Kind.COMPLETION: {"model": "m", "stream": True, "prompt": "x"},
    Kind.CHAT: {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x"}]},
}
DIRECT = (
    {},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
    {"json_schema": "{}"},
    {"regex": "a+"},
    {"ebnf": "root ::= 'a'"},
    {"stop": ["a"], "stop_token_ids": [1], "no_stop_trim": True},
    {"frequency_penalty": 1, "presence_penalty": 1, "repetition_penalty": 1.1, "logit_bias": {"1": 2}},
    {"stream_options": {"include_usage": True}},
    {"stream_options": None},
    {"temperature": 0, "top_p": 1, "top_k": 3, "min_p": 0.1, "seed": 5, "user": "u"},
    {"max_tokens": 9, "min_tokens": 1, "ignore_eos": True, "skip_special_tokens": False},
    {"n": 1, "logprobs": None, "echo": False, "tools": []},
    {"tool_choice": "none"},
    {"a_field_of_tomorrow": 0},
)
"""Options that leave the stream plain text."""
SGLANG = (
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"tools": [], "tool_choice": "auto"},
    {"logprobs": 2},
    {"top_logprobs": 2},
    {"n": 2},
    {"echo": True},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    {"stream": False},
    {"stream": None},
    {"return_token_ids": True},
    {"return_cached_tokens_details": True},
)
"""Each of these sends a request through SGLang whatever else it asks."""


def through(kind):
    """Those of SGLANG that the path has."""
    return [
        option
        for option in SGLANG
        if option.keys() <= TABLES[kind].keys() and not (kind is Kind.CHAT and "logprobs" in option)
    ]


def is_direct(kind, options):
    asked = rewrite(kind, json.dumps(ASKED[kind] | options).encode(), rid="r", tenant="t", takes_tokens=True)
    custom = msgspec.json.decode(asked.payload)["custom_params"]
    assert asked.takes_tokens == (TOKENS_PARAM in custom), "the scheduler is asked, or it is not"
    return asked.takes_tokens


@pytest.mark.parametrize("kind", ASKED)
def test_every_pair_of_plain_options_goes_directly(kind):
    for one, other in itertools.combinations(DIRECT, 2):
        assert is_direct(kind, one | other), (one, other)


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in ASKED for option in through(kind)])
def test_an_option_that_changes_the_stream_goes_through_sglang_beside_any_other(kind, option):
    for other in DIRECT:
        assert not is_direct(kind, other | option)


@pytest.mark.parametrize("value", [0, False])
def test_log_probabilities_of_the_tokens_alone_go_through_sglang(value):
    assert not is_direct(Kind.COMPLETION, {"logprobs": value})


def test_a_chat_without_log_probabilities_goes_directly():
    assert is_direct(Kind.CHAT, {"logprobs": False, "top_logprobs": None})


@given(st.sampled_from(list(ASKED)), st.sets(st.sampled_from(range(len(DIRECT)))), st.integers(0, 99))
def test_a_set_of_options_goes_directly_unless_one_of_them_does_not(kind, plain, other):
    options = {}
    for number in sorted(plain):
        options |= DIRECT[number]
    others = through(kind)
    if other < len(others):
        options |= others[other]
    assert is_direct(kind, options) == (other >= len(others))


@pytest.mark.parametrize("prompt", [["a", "b"], [[1], [2]], ["a"], [[1, 2]]])
def test_a_list_of_prompts_goes_through_sglang_whose_scheduler_renames_them(prompt):
    assert not is_direct(Kind.COMPLETION, {"prompt": prompt})


@pytest.mark.parametrize("prompt", ["a", [1, 2]])
def test_one_prompt_goes_directly_as_text_or_token_ids(prompt):
    assert is_direct(Kind.COMPLETION, {"prompt": prompt})


def test_other_paths_go_through_sglang():
    generate = json.dumps({"text": "x", "stream": True}).encode()
    assert not rewrite(Kind.GENERATE, generate, rid="r", tenant="t", takes_tokens=True).takes_tokens
    body = json.dumps({"model": "m", "stream": True, "input": "x"}).encode()
    asked = rewrite(Kind.RESPONSES, body, rid="r", tenant="t", takes_tokens=True)
    assert not asked.takes_tokens


def test_nothing_goes_directly_when_the_engine_does_not_hand_tokens_over():
    body = json.dumps(ASKED[Kind.CHAT]).encode()
    assert not rewrite(Kind.CHAT, body, rid="r", tenant="t", takes_tokens=False).takes_tokens


def test_the_page_names_every_option_that_is_tried_here():
    table = PAGE.read_text().partition("| request | its way with `direct` |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([a-z_./0-9]+)`", table))
    assert {"tools", "tool_choice", "logprobs", "n", "echo"} <= named
    assert "stream_options.include_usage" in named
