"""Other names of the served model, by tenant: what the engine is asked for, and what others are told."""

from __future__ import annotations

from dataclasses import replace

import pytest

MODEL, OTHER_KEY = "test-model", "pdm_bob"
ALIASES = ("claude-*", "gpt-4o")
TURNS = [{"role": "user", "content": "x"}]
BODIES = {
    "/v1/completions": {"prompt": "x"},
    "/v1/chat/completions": {"messages": TURNS},
    "/v1/responses": {"input": "x"},
    "/v1/messages": {"messages": TURNS, "max_tokens": 2},
    "/v1/messages/count_tokens": {"messages": TURNS},
    "/tokenize": {"prompt": "x"},
}


@pytest.fixture
def aliased(setup, make_directory):
    snapshot = make_directory()
    alice = replace(snapshot.tenants["alice"], model_aliases=ALIASES)
    setup.gateway.use_directory(replace(snapshot, tenants={**snapshot.tenants, "alice": alice}))
    return setup


def ask(setup, path, model, *, key="pdm_alice"):
    body = {"model": model, **BODIES[path]}
    return setup.client.post(setup.url + path, json=body, headers={"Authorization": f"Bearer {key}"})


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-", "gpt-4o", MODEL])
async def test_the_engine_is_asked_for_its_own_model_when_a_tenant_uses_an_alias(aliased, path, model):
    aliased.engine.say(b"{}")
    async with ask(aliased, path, model) as answer:
        assert answer.status == 200, await answer.text()
    assert (await aliased.engine.seen.get())["model"] == MODEL


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize(
    ("model", "key"), [("claude-x", OTHER_KEY), ("gpt-4o-mini", "pdm_alice"), ("xclaude-", "pdm_alice")]
)
async def test_404_when_it_is_another_tenants_alias_or_none(aliased, path, model, key):
    async with ask(aliased, path, model, key=key) as answer:
        assert answer.status == 404
        assert (await answer.json())["error"]["code"] == "model_not_found"
    assert aliased.engine.seen.empty()


async def test_the_served_model_is_shown_when_it_is_asked_for_by_an_alias(aliased):
    headers = {"Authorization": "Bearer pdm_alice"}
    async with aliased.client.get(aliased.url + "/v1/models/claude-x", headers=headers) as answer:
        assert (answer.status, (await answer.json())["id"]) == (200, MODEL)


async def test_503_and_not_404_when_no_engine_has_said_what_it_serves(aliased):
    aliased.gateway._slot._models = frozenset()
    aliased.gateway.lose_engine("starting")
    aliased.use_times(wait_s=5.0)
    async with ask(aliased, "/v1/completions", "gpt-4o") as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (503, "engine_starting")
