"""Two ranks on the CPU, under aborts and policy switches, with prefixes evicted all the time and a device
that is behind the host.

Ranks whose prefix caches differ form batches of different sizes and end.
"""

import asyncio

import late_device
from sglang_processes import Link, OurServer, ask_all, wrong_answers

POLICIES = ("muxwise", "auto", "chunked:256", "static:80,52")
SMALL_POOL = ("--max-total-tokens", "3000")


async def test_greedy_tokens_are_stock_sglangs_when_two_ranks_serve(
    python, model, prompts, stock, late_device_variables, tmp_path
):
    asked, late = prompts.first(60), late_device_variables
    with OurServer(python, model, tmp_path, tp_size=2, flags=SMALL_POOL, variables=late) as server:
        async with Link(server.link_address) as link:
            async with link.changing(POLICIES, every_s=1.0), asyncio.timeout(300):
                answers = await ask_all(server.base_url, asked)
            stats = await link.idle()
            assert stats.settings_version > len(POLICIES)
            assert stats.kv_used_tokens == 0
            assert link.hello.can_measure is False
        assert wrong_answers(asked, answers, stock.answers[: len(answers)]) == {}
        assert "leak" not in server.log
        assert server.log.count(late_device.SAYS) > 2, "on two ranks"
