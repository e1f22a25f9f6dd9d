"""Answers of every API are the same, event by event, when tokens come straight from SGLang's scheduler."""

import pytest
from both_ways import same
from sglang_processes import OurServer

FLAGS = ("--tool-call-parser", "hermes")
TEXTS = ("Hello", "Ein Satz mit Umläuten: äöü. ", "数字七")
TURNS = [[{"role": "user", "content": text}] for text in TEXTS]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
MESSAGES_TOOL = {"name": "f", "description": "", "input_schema": {"type": "object", "properties": {}}}
CODE = r"[a-z]{6} <[a-z]{4}> [a-z]{9} <<[a-z]{12}"
CALL = r'[a-z]{12} <b[a-z]{9}<tool_call>\{"name": "f", "arguments": \{\}\}</tool_call>'
NO_CALL = r"[a-z]{12}<tool_[a-z]{12}"
GREEDY = {"temperature": 0, "max_tokens": 30, "ignore_eos": True}
SHORT = {"temperature": 0, "max_tokens": 90}
RESPONSE = {"temperature": 0, "max_output_tokens": 30}
SAMPLED = {"temperature": 0, "max_new_tokens": 30, "ignore_eos": True}
COUNTED = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
CASES = {
    "completion counted": ("/v1/completions", [{"prompt": text} | GREEDY | COUNTED for text in TEXTS]),
    "chat counted": ("/v1/chat/completions", [{"messages": turns} | GREEDY | COUNTED for turns in TURNS]),
    "completion of one in a list": ("/v1/completions", [{"prompt": [text]} | GREEDY for text in TEXTS]),
    "completion of several": ("/v1/completions", [{"prompt": list(TEXTS)} | GREEDY | COUNTED]),
    "completion choices": ("/v1/completions", [{"prompt": text, "n": 3} | GREEDY for text in TEXTS]),
    "chat choices": ("/v1/chat/completions", [{"messages": turns, "n": 2} | GREEDY for turns in TURNS]),
    "chat with a parser of calls": (
        "/v1/chat/completions",
        [{"messages": turns} | GREEDY for turns in TURNS],
    ),
    "chat that calls nothing": (
        "/v1/chat/completions",
        [{"messages": TURNS[0], "tools": [TOOL], "tool_choice": "none"} | GREEDY],
    ),
    "chat that calls": (
        "/v1/chat/completions",
        [{"messages": TURNS[0], "tools": [TOOL], "regex": regex} | SHORT for regex in (CODE, CALL, NO_CALL)],
    ),
    "messages that may call": (
        "/v1/messages",
        [{"messages": turns, "tools": [MESSAGES_TOOL]} | SHORT for turns in TURNS],
    ),
    "completion with log probabilities": (
        "/v1/completions",
        [{"prompt": text, "logprobs": tops} | GREEDY for text in TEXTS for tops in (0, 3)],
    ),
    "completion choices with log probabilities": (
        "/v1/completions",
        [{"prompt": TEXTS[0], "n": 2, "logprobs": 1} | GREEDY | COUNTED],
    ),
    "completion with log probabilities and a stop": (
        "/v1/completions",
        [{"prompt": TEXTS[1], "logprobs": 2, "stop": ["e", "a"]} | GREEDY],
    ),
    "chat with log probabilities": (
        "/v1/chat/completions",
        [
            {"messages": turns, "logprobs": True, "top_logprobs": tops} | more
            for turns in TURNS
            for tops, more in ((0, GREEDY), (3, GREEDY | COUNTED), (2, SHORT))
        ],
    ),
    "generate": ("/generate", [{"text": text, "sampling_params": SAMPLED} for text in TEXTS]),
    "generate ids": ("/generate", [{"input_ids": [65, 66, 67], "sampling_params": SAMPLED}]),
    "generate stop": ("/generate", [{"text": TEXTS[1], "sampling_params": SAMPLED | {"stop": ["e", "a"]}}]),
    "generate several": ("/generate", [{"text": list(TEXTS), "sampling_params": SAMPLED | {"n": 2}}]),
    "messages": (
        "/v1/messages",
        [{"messages": turns} | SHORT for turns in TURNS],
    ),
    "responses": (
        "/v1/responses",
        [{"input": text} | RESPONSE for text in TEXTS],
    ),
}


@pytest.fixture(scope="module")
def ours(python, model, tmp_path_factory):
    with OurServer(python, model, tmp_path_factory.mktemp("ours"), flags=FLAGS) as server:
        yield server


@pytest.mark.parametrize("case", CASES)
async def test_events_are_sglangs_own_when_tokens_come_directly(gateways, case):
    direct, http, receiver = gateways
    path, bodies = CASES[case]
    before = receiver.counts.tokens
    for body in bodies:
        await same(direct, http, path, body)
    assert receiver.counts.tokens - before >= 20 * len(bodies)
    assert receiver.mismatches == 0
