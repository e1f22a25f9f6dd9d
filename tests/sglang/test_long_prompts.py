"""Prompts whose activations memory does not hold whole: chunks in fused steps, whatever the policy."""

import asyncio
from pathlib import Path

import httpx
import pytest
import sglang_plugin
import small_memory
from sglang_processes import KEY, Link, OurServer, ask_all, wrong_answers

POLICIES = ("muxwise", "auto", "static:80,52")


@pytest.fixture(scope="module")
def small(python, model, tmp_path_factory):
    plugin, file = tmp_path_factory.mktemp("plugin"), Path(small_memory.__file__)
    variables = sglang_plugin.install(plugin, small_memory.NAME, file.stem, [file])
    with OurServer(python, model, tmp_path_factory.mktemp("small"), variables=variables) as server:
        yield server


async def test_greedy_tokens_are_stock_sglangs_when_prompts_are_too_long_for_memory(small, prompts, stock):
    some = prompts.first(100)
    async with Link(small.link_address) as link:
        await link.set("muxwise")
        async with link.changing(POLICIES, every_s=2.0):
            answers = await ask_all(small.base_url, some, speed=2.0)
        await link.idle()
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"{small.base_url}/flush_cache"
        flushed = await asyncio.to_thread(httpx.post, url, headers=headers, timeout=120)
    assert wrong_answers(some, answers, stock.answers[:100]) == {}
    assert f"prompts of more than {small_memory.WHOLE_TOKENS} new tokens are prefilled in chunks" in small.log
    assert link.reasons["too_long_for_memory"] > 10
    assert link.reasons["best_fit"] > 10
    assert flushed.status_code == 200
    assert "leak" not in small.log
