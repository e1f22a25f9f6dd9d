"""OpenAI's own client has the same answers whichever way the tokens of a real SGLang come."""

import asyncio

import openai
import pytest
from lone_gateway import KEY as CLIENT_KEY
from lone_gateway import lone_gateway
from openai_requests import REQUESTS, differences
from sglang_processes import KEY, Link, OurServer

from pdmuxd.engine.link.token_frames import frames_path

MODEL = "tiny"


FLAGS = ("--constrained-json-disable-any-whitespace",)
"""A model that knows nothing would fill its answer with blanks, and call no tool."""


@pytest.fixture(scope="module")
def ours(python, model, tmp_path_factory):
    with OurServer(python, model, tmp_path_factory.mktemp("ours"), flags=FLAGS) as server:
        yield server


def client_of(url):
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=CLIENT_KEY, max_retries=0, timeout=120)


async def test_the_openai_client_has_the_same_answers_whichever_way_their_tokens_come(ours, monkeypatch):
    async with (
        Link(ours.link_address) as link,
        lone_gateway(ours.base_url, KEY, MODEL, tokens=frames_path(ours.link_address)) as (url, receiver),
        lone_gateway(ours.base_url, KEY, MODEL) as (http_url, _),
        client_of(url) as direct,
        client_of(http_url) as http,
    ):
        opened, open_stream = set(), receiver.open
        monkeypatch.setattr(
            receiver, "open", lambda rid, *asked, **more: opened.add(rid) or open_stream(rid, *asked, **more)
        )
        await link.set("muxwise")
        async with asyncio.timeout(60):
            while not receiver.is_ready:  # noqa: ASYNC110 - the engine comes by itself
                await asyncio.sleep(0.05)
        assert not await differences(direct, http, REQUESTS, model=MODEL, opened=opened)
        assert receiver.mismatches == 0
        assert not receiver.counts.fallbacks.total()
        assert receiver.counts.tokens > 10 * len(opened)
