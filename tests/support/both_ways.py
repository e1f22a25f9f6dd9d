"""One SGLang behind two gateways: tokens come from its scheduler at one, through its HTTP at the other."""

import asyncio
import contextlib
import itertools
import json
import re

import httpx
from lone_gateway import KEY as CLIENT_KEY
from lone_gateway import lone_gateway
from sglang_processes import KEY, Link

from pdmuxd.engine.link.token_frames import frames_path

MODEL = "tiny"
ATTEMPTS = 20
BEGIN = {"prompt": "Begin", "temperature": 0, "max_tokens": 20, "ignore_eos": True}
OWN = (
    (r'"(id|item_id|response_id)":"[0-9a-z_]+"', r'"\1":""'),
    (r'"(created|created_at|completed_at)":[\d.]+', r'"\1":0'),
    (r'"(e2e_latency|response_sent_to_client_ts)":[\d.e+-]+', r'"\1":0'),
)
"""What differs from request to request."""


@contextlib.asynccontextmanager
async def both_ways(ours):
    """The URLs of both, and what takes the scheduler's tokens."""
    async with (
        Link(ours.link_address) as link,
        lone_gateway(ours.base_url, KEY, MODEL, tokens=frames_path(ours.link_address)) as (direct, receiver),
        lone_gateway(ours.base_url, KEY, MODEL) as (http, _),
    ):
        await link.set("muxwise")
        async with asyncio.timeout(60):
            while not receiver.is_ready:  # noqa: ASYNC110 - the engine comes by itself
                await asyncio.sleep(0.05)
            while not receiver.counts.tokens:  # it looks now and then whether the receiver is ready
                await events(direct, "/v1/completions", BEGIN)
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
            return ours
    different = next(pair for pair in itertools.zip_longest(ours, theirs) if pair[0] != pair[1])
    raise AssertionError(f"not once the same in {ATTEMPTS} times: {different[0]}\nand\n{different[1]}")
