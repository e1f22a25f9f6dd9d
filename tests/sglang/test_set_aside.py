"""Prefills set aside several deep on the real SGLang: nobody's tokens change, whoever is aborted."""

import asyncio
from collections import Counter

import pytest
from changing_policies import flush
from nested_prefills import LAYERS, TOKENS, Waves, ask_undisturbed, depths, put_in_force, variables
from sglang_processes import Link, OurServer

from gpu_servers.model_folder import write_model_folder, write_weights

SHORTEST = len(TOKENS) - 1
MOST_WAVES = 12
"""Of which some get deep enough, however busy the machine is."""


@pytest.fixture(scope="module")
def server(python, tmp_path_factory):
    folder = tmp_path_factory.mktemp("set-aside")
    shape = write_model_folder("tiny", folder / "model", torch_dtype="float32", num_hidden_layers=LAYERS)
    with OurServer(
        python, write_weights(shape), folder, policy="auto", variables=variables(folder)
    ) as server:
        yield server


@pytest.fixture
async def link(server):
    async with Link(server.link_address) as link:
        yield link


async def test_tokens_are_those_of_an_undisturbed_run_when_prefills_are_set_aside_and_aborted(server, link):
    undisturbed = await ask_undisturbed(server.base_url, link)
    assert len({tuple(answer) for answer in undisturbed.answers}) > 6, "a comparison of constants"
    await put_in_force(link, "auto:nofuse", tbt_s=0.6)
    await link.idle()
    link.records.clear()
    async with Waves(server.base_url, undisturbed, seed=7) as waves:
        aborts = [(), *((length,) for length in range(SHORTEST)), (0, 1, 2), (1, 2, 3)]
        for abort in aborts:
            await waves.send(abort=abort)
            await waves.forget_prefixes()
        for _ in range(MOST_WAVES):
            if max(depths(server.log), default=0) >= 3:
                break
            await waves.send()
            await waves.forget_prefixes()
    await link.idle()
    outcome = waves.outcome
    assert outcome.wrong == []
    assert outcome.whole + outcome.aborted == outcome.asked
    assert outcome.aborted > 0
    assert max(depths(server.log)) >= 3
    assert await asyncio.to_thread(flush, server) == 200
    stats = await link.told(lambda stats: not stats.cached_tokens)
    assert (stats.kv_used_tokens, stats.dropped_records) == (0, 0)
    assert "leak" not in server.log
    ended = Counter(record.request_id for record in link.records)
    assert (len(ended), max(ended.values())) == (outcome.asked, 1)
