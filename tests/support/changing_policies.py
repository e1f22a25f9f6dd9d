"""Answers while policies change, and that the engine is as it was afterwards."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

import httpx
from sglang_processes import KEY, Answers, Link, OurServer, Prompts, ask_all

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
