"""Requests that wait for an engine, and go to the next one."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

WAIT_S = 60.0


@pytest.fixture
def patient(setup):
    setup.use_times(wait_s=WAIT_S)
    return setup


async def waiting(setup, **fields):
    """A request that waits at the gateway."""
    task = asyncio.create_task(setup.post(**fields).__aenter__())
    while not setup.gateway.admission.in_flight:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0)
    return task


async def test_a_request_waits_for_the_engine_that_comes(patient):
    patient.gateway.lose_engine("down")
    task = await waiting(patient)
    patient.engine.say(b'{"ok":1}')

    patient.gateway.use_engine(patient.address)

    answer = await task
    assert (answer.status, await answer.read()) == (200, b'{"ok":1}')


async def test_a_request_waits_for_the_end_of_a_restarts_drain(patient):
    patient.gateway.refuse_new()
    task = await waiting(patient)
    patient.engine.say(b"{}")
    patient.gateway.accept_new()
    assert (await task).status == 200


async def test_a_request_is_refused_when_no_engine_comes_in_time(setup):
    setup.use_times(wait_s=0.05)
    setup.gateway.lose_engine("down")
    async with setup.post() as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (503, "engine_down")


async def test_waiting_requests_are_told_when_the_daemon_stops(patient):
    patient.gateway.lose_engine("down")
    task = await waiting(patient)
    assert await patient.gateway.drain(WAIT_S) == 0
    answer = await task
    assert (answer.status, (await answer.json())["error"]["code"]) == (503, "draining")


async def test_a_client_that_leaves_waits_no_more(patient):
    patient.gateway.lose_engine("down")
    task = await waiting(patient)
    task.cancel()
    async with asyncio.timeout(WAIT_S):
        await patient.gateway.admission.wait_idle()


async def test_a_request_that_was_in_a_lost_engine_goes_to_no_other(patient):
    task = await waiting(patient)
    await patient.engine.seen.get()
    patient.gateway.lose_engine("down")
    patient.gateway.use_engine(patient.address)
    answer = await task
    assert (answer.status, (await answer.json())["error"]["code"]) == (502, "engine_lost")
    assert patient.engine.seen.empty()


async def test_a_stream_that_has_begun_is_not_sent_again(patient):
    task = await waiting(patient, stream=True)
    await patient.engine.seen.get()
    patient.engine.say(b"data: 1\n\n")
    answer = await task
    assert await answer.content.readany() == b"data: 1\n\n"
    patient.gateway.lose_engine("down")
    assert b"engine_lost" in await answer.content.read()
    assert patient.engine.seen.empty()


BAD = {"key": "pdm_bob", "prompt": "bad"}


async def in_engine(setup, *asked):
    """Requests, each with its fields, that the engine has and has not answered; their tasks."""
    tasks = []
    for fields in asked:
        tasks.append(asyncio.create_task(setup.post(**fields).__aenter__()))
        await setup.engine.seen.get()
    return tasks


async def first_end(setup):
    """An engine that has the bad request and another one dies, and the next serves."""
    tasks = await in_engine(setup, BAD, {"prompt": "one"})
    await next_engine(setup, len(tasks))
    for task in tasks:
        assert (await task).status == 502, "at a first end it may have been anyone"


async def next_engine(setup, in_flight):
    """The engine dies with so many requests, and another one serves."""
    setup.gateway.lose_engine("down")
    for _ in range(in_flight):
        await setup.engine.closed.get()
    setup.gateway.use_engine(setup.address)


async def test_what_another_request_ended_goes_to_the_next_engine_without_a_setting(setup):
    await first_end(setup)
    bad, good = await in_engine(setup, BAD, {"prompt": "two"})
    await next_engine(setup, 2)
    await setup.engine.seen.get()
    setup.engine.say(b'{"ok":1}')
    answer = await good
    assert (answer.status, await answer.read()) == (200, b'{"ok":1}')
    assert (await bad).status == 502
    async with setup.post(**BAD) as answer:
        assert (answer.status, (await answer.json())["error"]["code"]) == (403, "quarantined")


async def test_so_does_a_stream_of_which_only_the_head_was_sent(setup):
    await first_end(setup)
    _, good = await in_engine(setup, BAD, {"prompt": "two", "stream": True})
    answer = await good
    await next_engine(setup, 2)
    await setup.engine.seen.get()
    setup.engine.say(b"data: 1\n\n", b"data: [DONE]\n\n")
    setup.engine.end()
    assert await answer.content.read() == b"data: 1\n\ndata: [DONE]\n\n"


async def test_such_a_stream_says_why_the_next_engine_refuses_it(setup):
    await first_end(setup)
    _, good = await in_engine(setup, BAD, {"prompt": "two", "stream": True})
    answer = await good
    setup.address = replace(setup.address, models=frozenset({"another"}))
    await next_engine(setup, 2)
    event = (await answer.content.read()).removeprefix(b"data: ")
    assert json.loads(event)["error"]["code"] == "model_not_found"


async def test_it_waits_for_the_next_engine_as_long_as_for_an_answer(setup):
    await first_end(setup)
    setup.use_times(first_byte_s=0.5)
    bad, good = await in_engine(setup, BAD, {"prompt": "two"})
    setup.gateway.lose_engine("down")
    assert (await bad).status == (await good).status == 502
