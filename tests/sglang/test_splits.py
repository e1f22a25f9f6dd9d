"""Policies with splits of their own: made at start, and then any policy may be put in force."""

import pytest
from sglang_processes import Link, OurServer, ask_all, wrong_answers

POLICIES = ("drift", "duet:64", "upstream", "muxwise:blocking", "pla/duet:128", "muxwise:preempt+whole")
AT_RISK_S = 0.001
"""A fused step of the tests' model is predicted to take 1.7 ms, a decode step 0.4 ms."""


@pytest.fixture(scope="module")
def server(python, model, tmp_path_factory):
    with OurServer(python, model, tmp_path_factory.mktemp("duet"), policy="duet:64") as server:
        yield server


async def test_all_splits_are_made_when_the_policy_of_the_start_wants_them(server):
    async with Link(server.link_address) as link:
        await link.set("duet:64")
        assert len(link.hello.partitions) == 24
    assert "pdmuxd: 24 partition groups: 132,0;124,8;116,16;112,20;" in server.log


async def test_greedy_tokens_are_stock_sglangs_when_chunks_go_beside_decode(server, prompts, stock):
    asked = prompts.first(60)
    async with Link(server.link_address) as link:
        await link.set("duet:64", tbt_s=AT_RISK_S)
        answers = await ask_all(server.base_url, asked, speed=2.0)
        stats = await link.idle()
        assert link.reasons["highest_throughput"] > 0
        assert link.reasons["wait_for_prefill"] > 0
        assert link.reasons["fused_fits"] > 0
    assert wrong_answers(asked, answers, stock.answers[:60]) == {}
    assert stats.kv_used_tokens == 0
    assert "leak" not in server.log


async def test_greedy_tokens_are_stock_sglangs_when_such_policies_change(server, prompts, stock):
    asked = prompts.first(80)
    async with Link(server.link_address) as link:
        await link.set("drift")
        async with link.changing(POLICIES, every_s=1.0):
            answers = await ask_all(server.base_url, asked)
        stats = await link.idle()
        assert stats.settings_version > len(POLICIES)
    assert wrong_answers(asked, answers, stock.answers[:80]) == {}
    assert stats.kv_used_tokens == 0
