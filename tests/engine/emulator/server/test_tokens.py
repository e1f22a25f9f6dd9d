"""Token counts are exact: what was asked for is what is produced, sent and reported."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.emulator.server.answers import GenerateAnswer
from pdmuxd.engine.emulator.server.delivery import Inbox, Output
from pdmuxd.engine.emulator.server.planning import Plan
from pdmuxd.engine.emulator.server.tokenizer import split

TEXT = st.text(st.characters(codec="utf-8"), min_size=1, max_size=200)
IDS = st.lists(st.integers(0, 2**31 - 1), min_size=1, max_size=100)
examples = settings(
    max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def content_of(path: str, event: Any) -> str | None:
    if path == "/v1/chat/completions":
        content: str | None = event["choices"][0]["delta"].get("content")
        return content
    text: str = event["choices"][0]["text"]
    return text


@examples
@given(prompt=TEXT, tokens=st.integers(1, 300), chat=st.booleans())
async def test_tokens_are_exact_when_the_end_of_sequence_is_ignored(
    server: Any, prompt: str, tokens: int, chat: bool
) -> None:
    path = "/v1/chat/completions" if chat else "/v1/completions"
    ask: dict[str, Any] = {"max_tokens": tokens, "ignore_eos": True}
    ask |= {"messages": [{"role": "user", "content": prompt}]} if chat else {"prompt": prompt}

    *events, ending, usage = await server.events(path, **ask, stream_options={"include_usage": True})
    if chat:
        role = events.pop(0)
        assert role["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    pieces = [content_of(path, event) for event in events]
    assert len(pieces) == tokens
    assert ending["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == tokens
    text = "".join(piece for piece in pieces if piece is not None)
    assert len(split(text)) == tokens
    if not chat:
        assert usage["usage"]["prompt_tokens"] == len(split(prompt))
    assert usage["usage"]["total_tokens"] == usage["usage"]["prompt_tokens"] + tokens

    whole = (await server.post(path, **ask)).json()
    choice = whole["choices"][0]
    assert (choice["message"]["content"] if chat else choice["text"]) == text
    assert choice["finish_reason"] == "length"
    assert whole["usage"]["completion_tokens"] == tokens
    assert whole["usage"]["prompt_tokens"] == usage["usage"]["prompt_tokens"]
    assert server.ended[-1].produced_tokens == tokens


@examples
@given(ids=IDS, tokens=st.integers(1, 300), least=st.integers(0, 300))
async def test_tokens_are_exact_when_a_prompt_is_token_ids(
    server: Any, ids: list[int], tokens: int, least: int
) -> None:
    limits = {"max_tokens": tokens, "min_tokens": min(least, tokens)}
    body = (await server.post("/v1/completions", prompt=ids, **limits)).json()
    produced = body["usage"]["completion_tokens"]
    assert body["usage"]["prompt_tokens"] == len(ids)
    assert min(least, tokens) <= produced <= tokens
    assert len(split(body["choices"][0]["text"])) == produced
    assert body["choices"][0]["finish_reason"] == ("length" if produced == tokens else "stop")


@examples
@given(ids=IDS, tokens=st.integers(1, 200))
async def test_tokens_are_exact_when_generate_streams_the_text_so_far(
    server: Any, ids: list[int], tokens: int
) -> None:
    sampling = {"max_new_tokens": tokens, "ignore_eos": True}
    events = await server.events("/generate", input_ids=ids, sampling_params=sampling)
    counts = [event["meta_info"]["completion_tokens"] for event in events]
    assert counts == sorted(set(counts))  # on a busy machine a reader falls behind, and gets the newest
    assert [len(split(event["text"])) for event in events] == counts
    assert all(event["meta_info"]["prompt_tokens"] == len(ids) for event in events)
    assert all(event["meta_info"]["finish_reason"] is None for event in events[:-1])
    assert events[-1]["meta_info"]["finish_reason"] == {"type": "length", "length": tokens}
    whole = (await server.post("/generate", input_ids=ids, sampling_params=sampling)).json()
    assert whole["text"] == events[-1]["text"]
    assert whole["meta_info"]["completion_tokens"] == tokens
    assert whole["meta_info"]["e2e_latency"] > 0


async def test_a_reader_that_fell_behind_is_sent_the_newest_text_alone() -> None:
    pieces = tuple(b" word%d" % (i % 10) for i in range(5000))
    request = EmulatedRequest(
        request_id="r", tenant="t", arrival_s=0.0, input_tokens=1, output_tokens=5000, block_keys=(1,)
    )
    plan = Plan(
        prompt_tokens=1,
        block_keys=(1,),
        answer_keys=(),
        pieces=pieces,
        finish_reason="length",
        matched_stop=None,
        max_tokens=5000,
    )
    output = Output(request, plan, Inbox(every_token=True))
    answer = GenerateAnswer("r")
    assert answer.tokens(0, output, 0, 3).count(b"data: ") == 3
    behind = answer.tokens(0, output, 3, 4900)
    assert behind.count(b"data: ") == 1
    event = json.loads(behind.removeprefix(b"data: "))
    assert event["text"].encode() == b"".join(pieces[:4900])
    assert event["meta_info"]["completion_tokens"] == 4900
    assert answer.tokens(0, output, 4900, 4901).count(b"data: ") == 1
