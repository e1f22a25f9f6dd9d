"""The endpoints answer as SGLang's do."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from pdmuxd.engine.emulator.server.refusals import refuse
from pdmuxd.engine.emulator.server.tokenizer import split

PROMPT = "A prompt that is long enough to fill several blocks of the prefix cache. " * 5


async def test_the_model_is_listed_when_asked_for(server: Any) -> None:
    models = (await server.client.get("/v1/models")).json()
    assert [model["id"] for model in models["data"]] == ["llama-8b"]
    assert models["data"][0]["max_model_len"] == 131_072
    assert (await server.client.get("/v1/models/llama-8b")).json() == models["data"][0]
    assert (await server.client.get("/v1/models/llama-9b")).status_code == 404
    assert (await server.client.get("/get_model_info")).json()["is_generation"] is True


async def test_the_server_describes_itself_when_asked(server: Any) -> None:
    await server.post("/v1/completions", prompt="hello", max_tokens=3, ignore_eos=True)
    about = (await server.client.get("/get_server_info")).json()
    assert about == (await server.client.get("/server_info")).json() | {"counters": about["counters"]}
    assert about["engine"] == "emulator"
    assert about["version"] == "1.2.3"
    assert about["policy"] == "muxwise"
    assert about["settings_version"] == 0
    assert about["slo_versions"] == {}
    assert all(prefill + decode <= about["total_sms"] for prefill, decode in about["partitions"])
    assert about["counters"]["prompt_tokens"] == 1
    assert about["counters"]["output_tokens"] == 3


async def test_cached_tokens_are_reported_when_a_prompt_comes_again(server: Any) -> None:
    ask = {"prompt": PROMPT, "max_tokens": 2}
    first = (await server.post("/v1/completions", **ask)).json()["usage"]
    second = (await server.post("/v1/completions", **ask)).json()["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    cached = second["prompt_tokens_details"]["cached_tokens"]
    assert 0.7 * first["prompt_tokens"] < cached < first["prompt_tokens"]
    generated = (await server.post("/generate", text=PROMPT, sampling_params={"max_new_tokens": 1})).json()
    assert generated["meta_info"]["cached_tokens"] == cached
    salted = (await server.post("/v1/completions", **ask, cache_salt="other")).json()["usage"]
    assert salted["prompt_tokens_details"]["cached_tokens"] == 0


async def test_the_place_of_cached_tokens_is_told_when_asked_for(server: Any) -> None:
    ask = {"prompt": PROMPT, "max_tokens": 2, "return_cached_tokens_details": True}
    await server.post("/v1/completions", **ask)
    whole = (await server.post("/v1/completions", **ask)).json()
    cached = whole["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached > 0
    assert whole["sglext"] == {"cached_tokens_details": {"device": cached, "host": 0}}
    *_, last = await server.events("/v1/completions", **ask)
    assert (last["choices"], last["sglext"]) == ([], whole["sglext"])


async def test_nothing_is_cached_when_the_cache_was_flushed(server: Any) -> None:
    ask = {"prompt": PROMPT, "max_tokens": 2}
    await server.post("/v1/completions", **ask)
    assert (await server.client.post("/flush_cache", params={"timeout": 60.0})).status_code == 200
    usage = (await server.post("/v1/completions", **ask)).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0


async def test_each_prompt_gets_a_choice_when_a_list_is_completed(server: Any) -> None:
    prompts = ["one prompt", "another prompt", "one prompt"]
    body = (await server.post("/v1/completions", prompt=prompts, max_tokens=20, ignore_eos=True)).json()
    assert [choice["index"] for choice in body["choices"]] == [0, 1, 2]
    assert all(len(split(choice["text"])) == 20 for choice in body["choices"])
    assert body["usage"]["completion_tokens"] == 60
    assert body["usage"]["prompt_tokens"] == sum(len(split(prompt)) for prompt in prompts)

    *events, usage = await server.events(
        "/v1/completions",
        prompt=[[1, 2], [3, 4, 5]],
        max_tokens=20,
        ignore_eos=True,
        stream_options={"include_usage": True},
    )
    for index in (0, 1):
        choices = [event["choices"][0] for event in events if event["choices"][0]["index"] == index]
        assert len(choices) == 20 + 1
        assert [choice["finish_reason"] for choice in choices] == [None] * 20 + ["length"]
    assert usage["usage"]["completion_tokens"] == 40
    assert usage["usage"]["prompt_tokens"] == 5
    assert {request.request_id.rpartition("_")[2] for request in server.ended[-2:]} == {"0", "1"}


async def test_each_event_has_the_usage_so_far_when_asked_for(server: Any) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    ask = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 5, "ignore_eos": True}
    role, *events, ending, final = await server.events("/v1/chat/completions", **ask, stream_options=options)
    assert "usage" not in role
    assert [event["usage"]["completion_tokens"] for event in events] == [1, 2, 3, 4, 5]
    assert "usage" not in ending
    assert final["usage"]["completion_tokens"] == 5


async def test_a_stop_text_ends_the_answer_when_the_model_says_it(server: Any) -> None:
    ask = {"prompt": "hello", "max_tokens": 100, "ignore_eos": True, "stop": ["."]}
    choice = (await server.post("/v1/completions", **ask)).json()["choices"][0]
    assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", ".")
    assert "." not in choice["text"]
    *events, ending = await server.events("/v1/completions", **ask)
    assert "".join(event["choices"][0]["text"] for event in events) == choice["text"]
    assert ending["choices"][0]["matched_stop"] == "."
    *_, last = await server.events(
        "/generate", text="hello", sampling_params={"max_new_tokens": 100, "stop": "."}
    )
    assert last["meta_info"]["finish_reason"] == {"type": "stop", "matched": "."}


async def test_a_conversation_is_counted_whole_when_it_has_several_turns(server: Any) -> None:
    turns = [
        {"role": "system", "content": "be brief"},
        {"role": "user", "content": [{"type": "text", "text": "first"}, {"type": "text", "text": "second"}]},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "third"},
    ]
    one = (await server.post("/v1/chat/completions", messages=turns[:1], max_tokens=1)).json()
    all_turns = (await server.post("/v1/chat/completions", messages=turns, max_completion_tokens=1)).json()
    assert all_turns["usage"]["prompt_tokens"] > one["usage"]["prompt_tokens"] + 10
    assert all_turns["choices"][0]["message"]["role"] == "assistant"


async def test_the_tenant_and_the_id_reach_the_engine_when_they_are_in_the_body(server: Any) -> None:
    who = {"custom_params": {"pdmuxd_tenant": "acme"}}
    chat = await server.post(
        "/v1/chat/completions", messages=[{"role": "user", "content": "x"}], max_tokens=1, rid="r1", **who
    )
    assert chat.json()["id"] == "r1"
    await server.post("/generate", text="x", rid="r2", sampling_params={"max_new_tokens": 1, **who})
    await server.post("/v1/completions", prompt="x", max_tokens=1)
    seen = [(request.request_id, request.tenant) for request in server.ended]
    assert seen[:2] == [("r1", "acme"), ("r2", "acme")]
    assert seen[2][1] == "default"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("abort", [{"rid": "victim"}, {"abort_all": True}])
async def test_a_request_ends_as_aborted_when_it_is_aborted_by_id(
    slow_server: Any, stream: bool, abort: dict[str, Any]
) -> None:
    ask = {"prompt": "hello", "max_tokens": 100_000, "ignore_eos": True, "rid": "victim", "stream": stream}
    answer = asyncio.create_task(slow_server.post("/v1/completions", **ask))
    await until_running(slow_server.client, 1)
    assert (await slow_server.post("/flush_cache")).status_code == 400
    assert (await slow_server.post("/abort_request", rid="nobody")).status_code == 200
    assert slow_server.driver.open_requests == 1
    assert (await slow_server.post("/abort_request", **abort)).status_code == 200
    response = await asyncio.wait_for(answer, 60)
    assert '"finish_reason":"abort"' in response.text
    assert slow_server.driver.open_requests == 0
    assert 0 < slow_server.ended[-1].produced_tokens < 100_000


async def test_all_choices_end_when_their_common_id_is_aborted(slow_server: Any) -> None:
    ask = {"prompt": ["a", "b"], "max_tokens": 100_000, "ignore_eos": True, "rid": "victim"}
    answer = asyncio.create_task(slow_server.post("/v1/completions", **ask))
    await until_running(slow_server.client, 2)
    await slow_server.post("/abort_request", rid="victim")
    choices = (await asyncio.wait_for(answer, 60)).json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["abort", "abort"]


async def test_an_id_is_refused_when_it_is_in_use(slow_server: Any) -> None:
    ask = {"prompt": "hello", "max_tokens": 100_000, "ignore_eos": True, "rid": "same"}
    first = asyncio.create_task(slow_server.post("/v1/completions", **ask))
    await until_running(slow_server.client, 1)
    second = await slow_server.post("/v1/completions", **ask)
    assert second.status_code == 400
    assert second.json()["error"]["param"] == "rid"
    await slow_server.post("/abort_request", rid="same")
    await first


async def test_nothing_new_is_taken_when_the_engine_drains(slow_server: Any) -> None:
    ask = {"prompt": "hello", "max_tokens": 3000, "ignore_eos": True}
    first = asyncio.create_task(slow_server.post("/v1/completions", **ask))
    await until_running(slow_server.client, 1)
    slow_server.clock.hurry()
    await slow_server.driver.drain(60.0)
    refused = await slow_server.post("/v1/completions", **ask)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "engine_stopping")
    assert (await slow_server.client.get("/health")).status_code == 503
    assert (await first).json()["usage"]["completion_tokens"] == 3000


async def test_a_stream_ends_with_a_clear_error_when_the_engine_stops(slow_server: Any) -> None:
    ask = {"prompt": "hello", "max_tokens": 100_000, "ignore_eos": True}
    streamed = asyncio.create_task(slow_server.post("/v1/completions", **ask, stream=True))
    whole = asyncio.create_task(slow_server.post("/v1/completions", **ask))
    await until_running(slow_server.client, 2)
    slow_server.driver.abort_all(refuse("the engine is stopping", status=503, code="engine_stopping"))
    assert '"code":"engine_stopping"' in (await streamed).text.splitlines()[-4]
    assert (await whole).status_code == 503


async def until_running(client: httpx.AsyncClient, requests: int) -> None:
    """Until so many requests have produced a token, seen from outside."""
    async with asyncio.timeout(60):
        info: dict[str, Any] = {"counters": {"running": 0}}
        while info["counters"]["running"] < requests:
            await asyncio.sleep(0)
            info = (await client.get("/server_info")).json()


async def test_a_large_body_is_answered_as_a_small_one(server: Any) -> None:
    body = (await server.post("/v1/completions", prompt="word " * 30_000, max_tokens=3)).json()
    assert body["usage"] == body["usage"] | {"prompt_tokens": 30_001, "completion_tokens": 3}
