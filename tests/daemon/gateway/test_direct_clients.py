"""OpenAI's own client has the same answers whichever way the tokens of the emulated engine come."""

import asyncio
import os
import subprocess
import sys
import tempfile

import openai
import pytest
from lone_gateway import KEY as CLIENT_KEY
from lone_gateway import lone_gateway
from openai_requests import REQUESTS, differences

from pdmuxd.engine.link.token_frames import frames_path

ENGINE_KEY, MODEL = "engine-key", "llama-8b"


@pytest.fixture
def engine():
    """The emulated engine as a process: where it answers, and its link."""
    with tempfile.TemporaryDirectory(prefix="pdm") as folder:
        link = f"ipc://{folder}/engine"
        command = [sys.executable, "-m", "pdmuxd.engine.emulator.server", "--port", "0", "--link", link]
        command += ["--parent-pid", str(os.getpid())]
        environment = os.environ | {"PDMUXD_ENGINE_API_KEY": ENGINE_KEY}
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process.stdout.readline().split()[-1], link
            finally:
                process.terminate()


def client_of(url):
    return openai.AsyncOpenAI(base_url=f"{url}/v1", api_key=CLIENT_KEY, max_retries=0, timeout=60)


@pytest.mark.slow
async def test_the_openai_client_has_the_same_answers_whichever_way_their_tokens_come(engine, monkeypatch):
    url, link = engine
    async with (
        lone_gateway(url, ENGINE_KEY, MODEL, tokens=frames_path(link)) as (direct_url, receiver),
        lone_gateway(url, ENGINE_KEY, MODEL) as (http_url, _),
        client_of(direct_url) as direct,
        client_of(http_url) as http,
    ):
        opened, open_stream = set(), receiver.open
        monkeypatch.setattr(
            receiver, "open", lambda rid, *asked, **more: opened.add(rid) or open_stream(rid, *asked, **more)
        )
        async with asyncio.timeout(60):
            while not receiver.is_ready:  # noqa: ASYNC110 - the engine comes by itself
                await asyncio.sleep(0.02)
        asked = [each for each in REQUESTS if each.is_emulated]
        assert not await differences(direct, http, asked, model=MODEL, opened=opened)
        assert receiver.mismatches == 0
        assert not receiver.counts.fallbacks.total()
        assert receiver.counts.tokens > 10 * len(opened)
