"""What only happens where the device is behind the host: prefills launched behind each other."""

import asyncio

import httpx
import late_device
import pytest
from sglang_processes import KEY, Link, OurServer, ask_all, wrong_answers

POLICIES = ("muxwise", "auto", "static:80,52")


@pytest.fixture(scope="module")
def late(python, model, late_device_variables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    with OurServer(python, model, folder, variables=late_device_variables) as server:
        yield server


async def test_greedy_tokens_are_stock_sglangs_when_prefills_follow_each_other(late, prompts, stock):
    async with Link(late.link_address) as link:
        await link.set("muxwise")
        async with link.changing(POLICIES, every_s=2.0):
            answers = await ask_all(late.base_url, prompts, speed=2.0)
        await link.idle()
        headers = {"Authorization": f"Bearer {KEY}"}
        url = f"{late.base_url}/flush_cache"
        flushed = await asyncio.to_thread(httpx.post, url, headers=headers, timeout=120)
    assert wrong_answers(prompts, answers, stock.answers) == {}
    assert late.log.count(late_device.SAYS) > 10
    assert flushed.status_code == 200
    assert "leak" not in late.log
