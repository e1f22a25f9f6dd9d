"""Limits as clients of the gateway see them."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from pdmuxd.controlplane.tenants.limit_values import Limit


async def until(condition):
    """The gateway tells nobody when a request has come or gone."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0)


def limit(setup, make_directory, *limits, **fields):
    snapshot = make_directory()
    alice = replace(snapshot.tenants["alice"], limits=limits, **fields)
    setup.gateway.use_directory(replace(snapshot, tenants={**snapshot.tenants, "alice": alice}))


async def test_429_says_which_limit_and_when_to_come_again(setup, make_directory):
    limit(setup, make_directory, Limit(name="requests_per_min", value=1))
    setup.engine.say(b"{}")
    async with setup.post() as response:
        assert response.status == 200
    async with setup.post() as response:
        assert response.status == 429
        error = (await response.json())["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "requests_per_min")
        assert (error["limit"]["of"], error["limit"]["value"], error["limit"]["used"]) == (
            "tenant alice",
            1,
            1,
        )
        # OpenAI's clients take more than 60 for none.
        assert int(response.headers["Retry-After"]) == min(60, error["limit"]["retry_after_s"])
        assert 55 <= error["limit"]["retry_after_s"] <= 61
    # Another tenant's requests are not counted with these.
    setup.engine.say(b"{}")
    async with setup.post(key="pdm_bob") as response:
        assert response.status == 200


async def test_a_request_waits_for_its_turn_when_the_limit_lets_it(setup, make_directory):
    limit(setup, make_directory, Limit(name="concurrency", value=1, action="wait"))
    first = asyncio.create_task(setup.post().__aenter__())
    await setup.engine.seen.get()
    second = asyncio.create_task(setup.post(prompt="second").__aenter__())
    await until(lambda: setup.gateway.admission.in_flight == 2)
    assert setup.engine.seen.empty()
    setup.engine.say(b"{}", b"{}")
    assert (await first).status == 200
    assert (await setup.engine.seen.get())["prompt"] == "second"
    assert (await second).status == 200


async def test_its_place_is_free_again_when_a_client_leaves_while_it_waits(setup, make_directory):
    limit(setup, make_directory, Limit(name="concurrency", value=1, action="wait"))
    first = asyncio.create_task(setup.post().__aenter__())
    await setup.engine.seen.get()
    second = asyncio.create_task(setup.post().__aenter__())
    await until(lambda: setup.gateway.admission.in_flight == 2)
    second.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await second
    await until(lambda: setup.gateway.admission.in_flight == 1)
    setup.engine.say(b"{}", b"{}")
    assert (await first).status == 200
    async with setup.post() as response:
        assert response.status == 200


async def test_503_when_the_daemon_drains_while_a_request_waits(setup, make_directory):
    limit(setup, make_directory, Limit(name="concurrency", value=1, action="wait"))
    first = asyncio.create_task(setup.post().__aenter__())
    await setup.engine.seen.get()
    second = asyncio.create_task(setup.post().__aenter__())
    await until(lambda: setup.gateway.admission.in_flight == 2)
    setup.gateway.refuse_new()
    response = await second
    assert (response.status, (await response.json())["error"]["code"]) == (503, "draining")
    setup.engine.say(b"{}")
    assert (await first).status == 200
