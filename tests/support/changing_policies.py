"""Answers while policies change, and that the engine is as it was afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

import httpx
from sglang_processes import KEY, Answers, Link, OurServer, Prompts, StockServer, ask_all, wrong_answers

BY_LAYERS = ("static:84,48", "muxwise", "auto")
"""Policies that prefill by layers."""
HEADERS = {"Authorization": f"Bearer {KEY}"}


def flush(server: OurServer) -> int:
    """Empty the prefix cache; the status of the answer, 200 if nothing was in flight."""
    return httpx.post(f"{server.base_url}/flush_cache", headers=HEADERS, timeout=120).status_code


async def ask_while_policies_change(
    server: OurServer, prompts: Prompts, policies: Sequence[str]
) -> tuple[Answers, Counter[str]]:
    """The answers, and how many steps were decided for which reason. Nothing leaks, and nothing is left."""
    async with Link(server.link_address) as link:
        await link.set("muxwise")
        async with link.changing(policies, every_s=2.0):
            answers = await ask_all(server.base_url, prompts, speed=2.0)
        await link.idle()
        assert await asyncio.to_thread(flush, server) == 200
    assert "leak" not in server.log
    return answers, link.reasons


def varied_answers(stock: StockServer, asked: Prompts) -> Answers:
    """The answers of a server that nobody gives up; most differ, else they would prove nothing."""
    answers = asyncio.run(ask_all(stock.base_url, asked.without_aborts(), speed=4.0))
    assert len({tuple(answer) for answer in answers}) > 15, "a comparison of constants"
    return answers


async def ask_under_each(
    link: Link, server: OurServer, asked: Prompts, expected: Answers, in_force: Mapping[str, str]
) -> None:
    """Under each policy, for which the named one is in force, all answers are the expected ones."""
    for policy, other in in_force.items():
        ack, _ = await link.set(policy)
        assert ack.error is None
        answers = await ask_all(server.base_url, asked, speed=4.0)
        assert wrong_answers(asked, answers, expected) == {}
        assert (await link.idle()).policy == other


async def ask_by_layers(server: OurServer, asked: Prompts, expected: Answers) -> Counter[str]:
    """The same under policies that prefill by layers, as the model can be; steps beside layers, by mode."""
    async with Link(server.link_address) as link:
        await ask_under_each(link, server, asked, expected, {policy: policy for policy in BY_LAYERS})
        assert link.hello.unsplit == ""
        return Counter(step.mode for step in link.steps if step.prefill_layers)
