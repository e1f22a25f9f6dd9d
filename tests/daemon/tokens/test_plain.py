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
from pdmuxd.daemon.tokens.forms import Shape
from pdmuxd.daemon.tokens.plain import Direct
from pdmuxd.engine.link.request_tag import TAG_HEADER, decode_tag

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
    {"n": 2},
    {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    {"tools": [{"type": "function", "function": {"name": "f"}}]},
    {"tool_choice": "none"},
    {"a_field_of_tomorrow": 0},
)
"""Options with which the stream is the text of tokens and nothing else, unless a parser changes it."""
SGLANG = (
    {"echo": True},
    {"stream_options": {"an_option_of_tomorrow": True}},
    {"stream": False},
    {"stream": None},
    {"return_token_ids": True},
    {"return_cached_tokens_details": True},
)
"""Each of these sends a request through SGLang whatever else it asks."""


def through(kind):
    """Those of SGLANG that the path has."""
    return [option for option in SGLANG if option.keys() <= TABLES[kind].keys()]


def asked(kind, body, takes=lambda _: True):
    """What the answer needs, once it was checked that the engine is asked for its tokens or is not."""
    made = rewrite(kind, json.dumps(body).encode(), rid="r", tenant="t", takes_tokens=takes)
    sent = made.headers or {}
    told = msgspec.json.decode(made.payload)
    params = sent.get(TAG_HEADER) and decode_tag(sent[TAG_HEADER]).custom_params
    params = params or told.get("custom_params") or told["sampling_params"]["custom_params"]
    assert params.get(TOKENS_PARAM) == (None if made.direct is None else "r")
    return made.direct


def is_direct(kind, options):
    return asked(kind, ASKED[kind] | options) is not None


@pytest.mark.parametrize("kind", ASKED)
def test_every_pair_of_plain_options_goes_directly(kind):
    for one, other in itertools.combinations(DIRECT, 2):
        assert is_direct(kind, one | other), (one, other)


@pytest.mark.parametrize(("kind", "option"), [(kind, option) for kind in ASKED for option in through(kind)])
def test_an_option_that_changes_the_stream_goes_through_sglang_beside_any_other(kind, option):
    for other in DIRECT:
        assert not is_direct(kind, other | option)


@pytest.mark.parametrize("value", [2, 0, False])
def test_log_probabilities_of_a_completion_are_asked_for_by_any_number(value):
    """Also by 0, as which false is read."""
    body = ASKED[Kind.COMPLETION] | {"logprobs": value}
    assert asked(Kind.COMPLETION, body) == Direct(has_logprobs=True)


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({"logprobs": True, "top_logprobs": 2}, Direct(is_chat=True, has_logprobs=True)),
        ({"logprobs": False, "top_logprobs": None}, Direct(is_chat=True)),
        ({"top_logprobs": 2}, None),
    ],
)
def test_log_probabilities_of_a_chat_are_asked_for_by_a_truth(options, needs):
    assert asked(Kind.CHAT, ASKED[Kind.CHAT] | options) == needs


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
def test_a_list_of_prompts_has_choices_with_ids_of_their_own(prompt):
    body = ASKED[Kind.COMPLETION] | {"prompt": prompt}
    assert asked(Kind.COMPLETION, body).is_several


@pytest.mark.parametrize("prompt", ["a", [1, 2]])
def test_one_prompt_has_the_gateways_own_id(prompt):
    assert not asked(Kind.COMPLETION, ASKED[Kind.COMPLETION] | {"prompt": prompt}).is_several


TOOL = {"name": "f", "input_schema": {"type": "object"}}
MESSAGE = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}], "stream": True}
RESPONSE = {"model": "m", "input": "x", "stream": True}
GENERATE = {"text": "x", "stream": True, "sampling_params": {"max_new_tokens": 3}}


@pytest.mark.parametrize(
    ("kind", "body", "needs"),
    [
        (Kind.MESSAGES, MESSAGE, Direct(Shape.MESSAGES, is_chat=True)),
        (Kind.MESSAGES, MESSAGE | {"tools": [TOOL]}, Direct(Shape.MESSAGES, is_chat=True, has_tools=True)),
        (
            Kind.MESSAGES,
            MESSAGE | {"tools": [TOOL], "tool_choice": {"type": "none"}},
            Direct(Shape.MESSAGES, is_chat=True),
        ),
        (
            Kind.MESSAGES,
            MESSAGE | {"tools": [TOOL], "tool_choice": {"type": "any"}},
            Direct(Shape.MESSAGES, is_chat=True, has_tools=True, is_forced=True),
        ),
        (Kind.MESSAGES, MESSAGE | {"stream": False}, None),
        (Kind.RESPONSES, RESPONSE | {"instructions": "y", "temperature": 0.5}, Direct(Shape.RESPONSES, True)),
        (Kind.RESPONSES, RESPONSE | {"tools": [{"type": "function", "name": "f"}]}, None),
        (Kind.RESPONSES, RESPONSE | {"include": ["message.output_text.logprobs"]}, None),
        (Kind.GENERATE, GENERATE, Direct(Shape.GENERATE)),
        (Kind.GENERATE, GENERATE | {"text": ["x"]}, Direct(Shape.GENERATE, is_several=True)),
        (
            Kind.GENERATE,
            GENERATE | {"sampling_params": {"n": 2}},
            Direct(Shape.GENERATE, is_several=True),
        ),
        (Kind.GENERATE, GENERATE | {"return_logprob": True}, None),
        (Kind.GENERATE, GENERATE | {"sampling_params": {"spaces_between_special_tokens": False}}, None),
        (Kind.CHAT, ASKED[Kind.CHAT] | {"tools": [TOOL]}, Direct(is_chat=True, has_tools=True)),
        (
            Kind.CHAT,
            ASKED[Kind.CHAT] | {"tools": [TOOL], "tool_choice": "required"},
            Direct(is_chat=True, has_tools=True, is_forced=True),
        ),
        (Kind.CHAT, ASKED[Kind.CHAT] | {"chat_template_kwargs": {"thinking": True}}, Direct(is_chat=True)),
        (Kind.CHAT, ASKED[Kind.CHAT] | {"chat_template_kwargs": {"force_nonempty_content": True}}, None),
        (Kind.CHAT, ASKED[Kind.CHAT] | {"separate_reasoning": True}, Direct(is_chat=True)),
        (Kind.CHAT, ASKED[Kind.CHAT] | {"separate_reasoning": False}, None),
        (Kind.CHAT, ASKED[Kind.CHAT] | {"n": 2}, Direct(is_chat=True, is_several=True)),
        (
            Kind.CHAT,
            ASKED[Kind.CHAT] | {"stream_options": {"continuous_usage_stats": True}},
            Direct(is_chat=True, is_counted=True),
        ),
    ],
)
def test_what_an_answer_needs_to_be_made_of_tokens(kind, body, needs):
    assert asked(kind, body) == needs


def test_nothing_goes_directly_when_the_engine_does_not_hand_tokens_over():
    assert asked(Kind.CHAT, ASKED[Kind.CHAT], takes=lambda _: False) is None


def test_the_page_names_every_option_that_is_tried_here():
    table = PAGE.read_text().partition("| request | its way with `direct` |")[2].partition("\n\n")[0]
    named = set(re.findall(r"`([a-z_./0-9]+)`", table))
    assert {"tools", "tool_choice", "logprobs", "n", "echo"} <= named
    assert "stream_options.include_usage" in named
