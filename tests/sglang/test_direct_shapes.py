"""Answers of every API are the same, event by event, when tokens come straight from SGLang's scheduler."""

import asyncio
import itertools
import json
import re

import httpx
import pytest
from lone_gateway import KEY as CLIENT_KEY
from lone_gateway import lone_gateway
from sglang_processes import KEY, Link, OurServer

from pdmuxd.engine.link.token_frames import frames_path

MODEL = "tiny"
ATTEMPTS = 20
FLAGS = ("--tool-call-parser", "hermes")
TEXTS = ("Hello", "Ein Satz mit Umläuten: äöü. ", "数字七")
TURNS = [[{"role": "user", "content": text}] for text in TEXTS]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
GREEDY = {"temperature": 0, "max_tokens": 30, "ignore_eos": True}
SHORT = {"temperature": 0, "max_tokens": 30}
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
OWN = (
    (r'"(id|item_id|response_id)":"[0-9a-z_]+"', r'"\1":""'),
    (r'"(created|created_at|completed_at)":[\d.]+', r'"\1":0'),
    (r'"(e2e_latency|response_sent_to_client_ts)":[\d.e+-]+', r'"\1":0'),
)
"""What differs from request to request."""


@pytest.fixture(scope="module")
def ours(python, model, tmp_path_factory):
    with OurServer(python, model, tmp_path_factory.mktemp("ours"), flags=FLAGS) as server:
        yield server


@pytest.fixture
async def gateways(ours):
    """One whose tokens come from the scheduler, one whose tokens come through SGLang's HTTP."""
    async with (
        Link(ours.link_address) as link,
        lone_gateway(ours.base_url, KEY, MODEL, tokens=frames_path(ours.link_address)) as (direct, receiver),
        lone_gateway(ours.base_url, KEY, MODEL) as (http, _),
    ):
        await link.set("muxwise")
        async with asyncio.timeout(60):
            while not receiver.is_ready:  # noqa: ASYNC110 - the engine comes by itself
                await asyncio.sleep(0.05)
        yield direct, http, receiver


async def events(url, path, body):
    """The answer's events, those of each choice together."""
    headers = {"Authorization": f"Bearer {CLIENT_KEY}"}
    named = {} if path == "/generate" else {"model": MODEL}
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=120) as client:
        response = await client.post(path, json=named | {"stream": True} | body)
    said = response.text
    assert response.status_code == 200, said
    for pattern, instead in OWN:
        said = re.sub(pattern, instead, said)
    return sorted(said.split("\n\n"), key=choice_of)


def choice_of(event):
    data = event.partition("data: {")[2]
    if not data:
        return -1
    told = json.loads("{" + data)
    return (told.get("choices") or [told])[0].get("index", 0)


async def same(direct, http, path, body):
    """Asked again where SGLang's front end made one event of several, because it fell behind."""
    for _ in range(ATTEMPTS):
        ours, theirs = await asyncio.gather(events(direct, path, body), events(http, path, body))
        if ours == theirs:
            return
    different = next(pair for pair in itertools.zip_longest(ours, theirs) if pair[0] != pair[1])
    raise AssertionError(f"not once the same in {ATTEMPTS} times: {different[0]}\nand\n{different[1]}")


@pytest.mark.parametrize("case", CASES)
async def test_events_are_sglangs_own_when_tokens_come_directly(gateways, case):
    direct, http, receiver = gateways
    path, bodies = CASES[case]
    before = receiver.counts.tokens
    for body in bodies:
        await same(direct, http, path, body)
    assert receiver.counts.tokens - before >= 20 * len(bodies)
    assert receiver.mismatches == 0
