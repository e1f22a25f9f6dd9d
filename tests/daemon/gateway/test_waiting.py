"""Requests that wait for an engine, and go to the next one."""

from __future__ import annotations

import asyncio

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
