"""The engine against stock SGLang, over HTTP and the link, with everything else going on meanwhile."""

import asyncio
import random

import httpx
import pytest
from answer_forms import alike, ask_forms, check_forms
from changing_policies import HEADERS, flush
from sglang_processes import KEY, Link, Prompts, addresses, ask_all, wrong_answers

POLICIES = ("auto", "chunked:256", "muxwise", "static:84,48", "pla/muxwise")


@pytest.fixture
async def link(ours):
    async with Link(ours.link_address) as link:
        await link.set("muxwise")
        yield link


async def test_greedy_tokens_are_stock_sglangs_when_requests_overlap_abort_and_policies_change(
    ours, link, prompts, stock
):
    async with link.changing(POLICIES, every_s=2.0):
        answers = await ask_all(ours.base_url, prompts)
    assert wrong_answers(prompts, answers, stock.answers) == {}
    assert len({tuple(answer) for answer in stock.answers}) > 150, "a comparison of constants"


@pytest.mark.parametrize("policy", ["muxwise", "auto", "chunked:64"])
async def test_answers_have_the_form_that_was_asked_for_and_are_stock_sglangs(ours, link, stock, policy):
    await link.set(policy)
    answers = await ask_forms(ours.base_url)
    check_forms(answers)
    assert alike(answers, stock.forms)


async def test_requests_go_on_when_generation_is_paused(ours, link, prompts, stock):
    asking = asyncio.create_task(ask_all(ours.base_url, prompts.first(40).without_aborts(), speed=4.0))
    paused = 0
    async with httpx.AsyncClient(base_url=ours.base_url, headers=HEADERS, timeout=120) as client:
        while not asking.done():
            mode = ("retract", "in_place")[paused % 2]
            answer = await client.post("/pause_generation", json={"mode": mode})
            assert answer.status_code == 200, answer.text
            await asyncio.sleep(0.1)
            assert (await client.post("/continue_generation", json={})).status_code == 200
            paused += 1
            await asyncio.sleep(0.4)
    assert await asking == stock.answers[:40]
    assert paused >= 2  # both modes


async def test_nothing_leaks_when_the_engine_is_idle(ours, link, prompts):
    await ask_all(ours.base_url, prompts.first(30), speed=4.0)
    await link.idle()
    assert await asyncio.to_thread(flush, ours) == 200
    stats = await link.told(lambda stats: stats.kv_used_tokens == 0)
    assert stats.dropped_records == 0
    assert "leak" not in ours.log


async def test_every_request_ends_once_when_some_are_aborted(ours, link, prompts):
    await link.idle()
    link.records.clear()
    await ask_all(ours.base_url, prompts.first(40), speed=2.0)
    await link.told(lambda _: len(link.records) >= 40)
    await link.idle()
    ids = [record.request_id for record in link.records]
    assert len(ids) == len(set(ids)) == 40
    aborted = sum(prompt.abort_after is not None for prompt in prompts.first(40).all)
    outcomes = [record.outcome for record in link.records]
    assert outcomes.count("failed") == 0
    assert 0 < outcomes.count("aborted") <= aborted


async def test_the_cache_is_not_flushed_when_a_prefill_is_in_flight(ours, link, prompts, stock):
    asking = asyncio.create_task(ask_all(ours.base_url, prompts.first(40).without_aborts(), speed=20.0))
    refused = 0
    while not asking.done():
        refused += await asyncio.to_thread(flush, ours) == 400
        await asyncio.sleep(0.05)
    assert refused > 0
    assert await asking == stock.answers[:40]


async def test_changes_are_acknowledged_when_the_engine_is_loaded(ours, link, prompts):
    # On a CPU a launch returns when the work is done: with long prompts safe points would be seconds apart.
    short = Prompts(tuple(prompt for prompt in prompts.without_aborts().all if len(prompt.tokens) <= 40))
    asking = asyncio.create_task(ask_all(ours.base_url, short, speed=4.0))
    acknowledged = 0
    while not asking.done():
        ack, _ = await link.set("muxwise", tbt_s=0.01 * (1 + acknowledged % 5))
        assert ack.error is None
        acknowledged += not asking.done()
        await asyncio.sleep(0.2)
    assert [len(answer) for answer in await asking] == [prompt.output_tokens for prompt in short.all]
    assert acknowledged > 3


@pytest.mark.parametrize(
    ("policy", "says"),
    [("nonsense", "unknown policy 'nonsense'"), ("static:8,124", "set engine.sglang.partitions to ")],
)
async def test_settings_are_refused_and_change_nothing_when_the_policy_cannot_be(ours, link, policy, says):
    ack, _ = await link.set(policy)
    assert says in ack.error
    assert (await link.idle()).policy == "muxwise"


def test_a_request_without_the_key_is_refused_when_the_engine_has_one(ours):
    body = {"input_ids": [5], "sampling_params": {"max_new_tokens": 1}}
    assert httpx.post(f"{ours.base_url}/generate", json=body, timeout=120).status_code == 401
    assert KEY not in ours.log


def test_no_port_can_be_reached_from_another_machine(ours):
    assert addresses(ours.process.pid) == {"127.0.0.1"}


def test_prompts_are_the_same_when_the_seed_is():
    assert Prompts.make(seed=3) == Prompts.make(seed=3)


@pytest.mark.parametrize(("tokens", "is_found_meanwhile"), [(100, False), (600, True)])
async def test_a_prompt_is_found_in_the_cache_when_its_answer_has_ended_and_a_long_one_before(
    ours, link, tokens, is_found_meanwhile
):
    prompt = random.Random(tokens).choices(range(3, 500), k=tokens)

    async def ask(answer_tokens):
        body = {
            "input_ids": prompt,
            "sampling_params": {"max_new_tokens": answer_tokens, "ignore_eos": True, "temperature": 0},
        }
        async with httpx.AsyncClient(base_url=ours.base_url, headers=HEADERS, timeout=120) as client:
            answer = await client.post("/generate", json=body)
        return answer.json()["meta_info"]["cached_tokens"]

    await link.idle()
    first = asyncio.create_task(ask(200))
    await link.told(lambda stats: stats.running > 0)
    meanwhile = await ask(1)
    assert not first.done(), "its answer was too short for the test"
    assert (meanwhile >= tokens // 2) is is_found_meanwhile
    await first
    assert await ask(1) >= tokens - 1
