"""A decode step of a part of the batch, on the real SGLang: nobody's tokens change."""

import asyncio

import pytest
from sglang_processes import TENANT, Link, OurServer, ask_all, wrong_answers

from pdmuxd.engine.core.latency import DecodeCoefficients
from pdmuxd.engine.link.predictors import Predictors, SoloRun

FEW_TOKENS = 4
STRICT, RELAXED_TBT_S, STRICT_TBT_S = "strict", 10.0, 0.1


@pytest.fixture(scope="module")
def server(python, model, tmp_path_factory):
    with OurServer(python, model, tmp_path_factory.mktemp("classes"), policy="auto") as server:
        yield server


def slow_decode(link: Link) -> Predictors:
    """Steps of more than three requests take longer than the strict target leaves: slower than they are, or
    the policy would find that its predictions are wrong, and leave nobody out."""
    fit = DecodeCoefficients(per_reused_s=0.0, per_request_s=0.02, fixed_s=0.005)
    sms = {decode for _, decode in link.hello.partitions if decode}
    return Predictors(
        profile_id=7,
        profile="slow",
        provenance="a test",
        solo_run=tuple(SoloRun(sms=each, decode=fit) for each in sorted(sms)),
        guard_default_ratio=1.0,
    )


@pytest.mark.parametrize("policy", ["auto", "auto:nofuse"])
async def test_greedy_tokens_are_stock_sglangs_when_the_relaxed_sit_steps_out(server, prompts, stock, policy):
    asked = prompts.first(60)
    async with Link(server.link_address) as link:
        await link.set(policy)
        await link.set(
            policy,
            tbt_s=RELAXED_TBT_S,
            others_tbt_s={STRICT: STRICT_TBT_S},
            predictors=slow_decode(link),
        )
        answers = await ask_all(server.base_url, asked, speed=20.0, tenants=(TENANT, STRICT, TENANT))
        stats = await link.idle()
        assert [step for step in link.steps if step.sitting_out], "all decoded in every step"
    assert wrong_answers(asked, answers, stock.answers[:60]) == {}
    assert stats.kv_used_tokens == 0
    assert "leak" not in server.log


async def test_prompts_wait_while_more_decode_than_a_step_has_tokens(server, prompts, stock):
    """No prompt is begun before there is room in the budget, and none is lost."""
    asked = prompts.first(60)
    async with Link(server.link_address) as link:
        await link.set("chunked:512")
        asking = asyncio.create_task(ask_all(server.base_url, asked, speed=20.0))
        async with asyncio.timeout(60):
            while not any(step.decode_bs > 2 * FEW_TOKENS for step in link.steps):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await link.set(f"chunked:{FEW_TOKENS}")
        before = len(link.steps)
        answers = await asking
        stats = await link.idle()
        assert [step for step in link.steps[before:] if step.decode_bs > FEW_TOKENS]
    assert wrong_answers(asked, answers, stock.answers[:60]) == {}
    assert stats.kv_used_tokens == 0
