"""Answers that SGLang's parsers of reasoning and of calls read are the same when tokens come directly."""

import json
from pathlib import Path

import pytest
import sglang_plugin
import thoughtful_chats
from both_ways import both_ways, events, same
from sglang_processes import OurServer

FLAGS = ("--tool-call-parser", "llama3", "--reasoning-parser", "qwen3")
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
ASKED = {"messages": [{"role": "user", "content": "Hello"}], "temperature": 0, "max_tokens": 120}
CALL = r'\{"name": "f", "parameters": \{\}\}'
SAID = {
    "reasoning": ({"max_tokens": 60, "ignore_eos": True}, ("reasoning_content",)),
    "reasoning, then text": (r"<think>[a-z]{12} <[a-z]{9}</think>[a-z]{12} [a-z]{9}", ("content",)),
    "reasoning, then a call": (r"<think>[a-z]{12}</think>[a-z]{15}" + CALL, ("content", "tool_calls")),
    "a call": (r"[a-z]{15}" + CALL, ("content", "tool_calls")),
    "braces": (r"[a-z]{12} \{[a-z]{6}\} [a-z]{12}", ("content",)),
}


MESSAGE = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 120, "temperature": 0}


@pytest.fixture(scope="module")
def ours(python, model, tmp_path_factory):
    with OurServer(python, model, tmp_path_factory.mktemp("ours"), flags=FLAGS) as server:
        yield server


@pytest.mark.parametrize("case", SAID)
async def test_events_are_sglangs_own_when_parsers_read_the_answer(gateways, case):
    direct, http, receiver = gateways
    options, said = SAID[case]
    if isinstance(options, str):
        # A grammar holds from the first token on where the model is not asked to reason.
        options = {"regex": options, "chat_template_kwargs": {"enable_thinking": False}, "tools": [TOOL]}
    before = receiver.counts.tokens
    told = await same(direct, http, "/v1/chat/completions", ASKED | options)
    assert all(
        any(f'"{field}":' in event and f'"{field}":null' not in event for event in told) for field in said
    )
    assert receiver.counts.tokens - before >= 8
    assert receiver.mismatches == 0


async def test_thoughts_of_a_message_are_sglangs_own(gateways):
    direct, http, receiver = gateways
    before = receiver.counts.tokens
    told = await same(direct, http, "/v1/messages", MESSAGE)
    assert any('"thinking_delta"' in event for event in told)
    assert receiver.counts.tokens - before >= 8
    assert receiver.mismatches == 0


async def test_a_message_behind_thoughts_is_sglangs_own(python, model, tmp_path):
    (tmp_path / "plugin").mkdir()
    file = Path(thoughtful_chats.__file__)
    variables = sglang_plugin.install(tmp_path / "plugin", thoughtful_chats.NAME, file.stem, [file])
    with OurServer(python, model, tmp_path, flags=FLAGS, variables=variables) as server:
        async with both_ways(server) as (direct, http, receiver):
            told = await same(direct, http, "/v1/messages", MESSAGE | {"thinking": {"type": "disabled"}})
            assert sum('"thinking_delta"' in event for event in told) > 8
            assert sum('"text_delta"' in event for event in told) > 8
            assert receiver.counts.tokens > 16
            assert receiver.mismatches == 0


async def test_a_second_begin_of_reasoning_is_text_as_sglang_says_it(gateways):
    """Which letters of it come in one event depends on what came with the first one."""
    direct, http, receiver = gateways
    regex = r"<think>[a-z]{9}</think>[a-z]{9}<think>[a-z]{9}</think>[a-z]{9} <[a-z]{9}"
    options = {"regex": regex, "chat_template_kwargs": {"enable_thinking": False}}
    ours, theirs = [await events(url, "/v1/chat/completions", ASKED | options) for url in (direct, http)]
    assert said(ours) == said(theirs)
    assert said(ours)["content"].count("think>") == 2
    assert receiver.mismatches == 0


def said(told):
    """What the client has of each field in the end."""
    deltas = [
        choice["delta"]
        for event in told
        if event.startswith("data: {")
        for choice in json.loads(event.removeprefix("data: "))["choices"]
    ]
    return {
        name: "".join(delta.get(name) or "" for delta in deltas) for name in ("reasoning_content", "content")
    }
