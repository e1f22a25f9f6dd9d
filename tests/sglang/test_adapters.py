"""Adapters on the real SGLang: a tenant's answers are those that stock SGLang gives with its adapter."""

import asyncio

import adapters
import httpx
import pytest
from sglang_processes import KEY, Link, OurServer, Prompts, StockServer, wrong_answers

from pdmuxd.engine.link.request_tag import TENANT_PARAM

TENANTS = ("plain", "poems", "codes")
"""Those of the last two have an adapter."""


@pytest.fixture(scope="module")
def served(model, tmp_path_factory):
    """Flags and environment of a server with two adapters."""
    folder = tmp_path_factory.mktemp("adapters")
    paths = [
        f"{tenant}={adapters.write_adapter(folder / tenant, model, seed=seed)}"
        for seed, tenant in enumerate(TENANTS[1:], start=21)
    ]
    return {
        "flags": (*adapters.FLAGS, "--lora-paths", *paths),
        "variables": adapters.variables(folder / "plugin"),
    }


@pytest.fixture(scope="module")
def prompts():
    return Prompts.make(seed=11, count=60).without_aborts()


@pytest.fixture(scope="module")
def stock(python, model, served, prompts, tmp_path_factory):
    """Stock SGLang's answers, each request naming its tenant's adapter."""
    with StockServer(python, model, tmp_path_factory.mktemp("stock"), **served) as server:
        return asyncio.run(ask(server.base_url, prompts, named=True))


async def ask(base_url, prompts, *, named):
    """Tokens of each answer, the prompts being of each tenant in turn; `named`: by the adapter's name."""
    limits = httpx.Limits(max_connections=None)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=base_url, timeout=300, headers=headers, limits=limits) as client:

        async def one(number, prompt):
            await asyncio.sleep(prompt.at_s)
            tenant = TENANTS[number % len(TENANTS)]
            sampling = {"max_new_tokens": prompt.output_tokens, "temperature": 0, "ignore_eos": True}
            body = {"input_ids": list(prompt.tokens), "sampling_params": sampling}
            if not named:
                sampling["custom_params"] = {TENANT_PARAM: tenant}
            elif tenant != TENANTS[0]:
                body["lora_path"] = tenant
            answer = await client.post("/generate", json=body)
            assert answer.status_code == 200, answer.text
            return answer.json()["output_ids"]

        return list(await asyncio.gather(*(one(*each) for each in enumerate(prompts.all))))


async def test_a_tenants_tokens_are_stock_sglangs_with_its_adapter_when_tenants_decode_together(
    python, model, served, stock, prompts, tmp_path
):
    with OurServer(python, model, tmp_path, policy="auto", **served) as server:
        async with Link(server.link_address) as link:
            answers = await ask(server.base_url, prompts, named=False)
            await link.idle()
            reasons, told = link.reasons, link.hello
    assert wrong_answers(prompts, answers, stock) == {}
    assert told.variant == "adapters of tenants"
    assert "which adapters a batch needs is kept once for both streams" in told.unsplit
    assert sum(reasons.values()) > 0


async def test_the_adapters_matter_when_the_same_prompts_are_asked_without(
    python, model, stock, prompts, tmp_path
):
    with OurServer(python, model, tmp_path, policy="auto") as server:
        plain = await ask(server.base_url, prompts, named=False)
    wrong = wrong_answers(prompts, plain, stock)
    assert {number % len(TENANTS) for number in wrong} == {1, 2}
