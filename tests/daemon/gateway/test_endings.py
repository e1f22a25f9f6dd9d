"""Every way in which a request can end before its answer is complete."""

import asyncio
import json

import pytest


async def open_stream(setup, first=b'data: {"n": 1}\n\n'):
    """A stream that has sent its first event."""
    response = await setup.post(stream=True)
    setup.engine.say(first)
    assert await response.content.readany() == first
    return response, (await setup.engine.seen.get())["rid"]


async def test_the_engine_is_told_when_a_client_leaves_in_mid_stream(setup):
    response, rid = await open_stream(setup)
    response.close()
    async with asyncio.timeout(60):
        assert await setup.engine.aborts.get() == rid
        assert await setup.engine.closed.get() == rid
        await setup.gateway.admission.wait_idle()
    assert 'pdmuxd_gateway_aborts_total{cause="client_disconnected"} 1.0' in setup.metrics.render().decode()


@pytest.mark.parametrize(("last", "early"), [(b"data: [DONE]\n\n", 0), (b'data: {"n": 2}\n\n', 1)])
async def test_an_answer_is_complete_when_the_client_leaves_with_its_last_event(
    setup, seen_leaving, last, early
):
    response, _ = await open_stream(setup)
    setup.engine.say(last)
    assert await response.content.readany() == last
    response.close()
    async with asyncio.timeout(60):
        await seen_leaving.wait()
        setup.engine.end()
        await setup.gateway.admission.wait_idle()
    aborts = f'pdmuxd_gateway_aborts_total{{cause="client_disconnected"}} {early:.1f}'
    assert aborts in setup.metrics.render().decode()


async def test_the_engine_is_told_when_a_client_leaves_while_it_waits(setup):
    waiting = asyncio.create_task(setup.post().__aenter__())
    rid = (await setup.engine.seen.get())["rid"]
    waiting.cancel()
    async with asyncio.timeout(60):
        assert await setup.engine.aborts.get() == rid
        assert await setup.engine.closed.get() == rid
        await setup.gateway.admission.wait_idle()


async def test_the_place_is_free_again_when_a_client_leaves_in_mid_body(setup):
    entered = asyncio.Event()

    async def body():
        yield b"{"
        entered.set()
        await asyncio.Event().wait()

    headers = {"Authorization": "Bearer pdm_alice"}
    post = setup.client.post(setup.url + "/v1/completions", data=body(), headers=headers)
    sending = asyncio.create_task(post.__aenter__())
    await entered.wait()
    async with asyncio.timeout(60):
        while not setup.gateway.admission.in_flight:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
    sending.cancel()
    async with asyncio.timeout(60):
        await setup.gateway.admission.wait_idle()
    assert setup.engine.seen.empty()


@pytest.mark.parametrize(
    ("cut", "joint"), [(b'data: {"n": 1}\n\n', b""), (b'data: {"n": 1}\n\ndata: {"n"', b"\n\n")]
)
async def test_a_stream_ends_with_an_error_event_when_the_engine_dies(setup, cut, joint):
    response, _ = await open_stream(setup, cut)
    setup.engine.die()
    async with asyncio.timeout(60):
        rest = await response.read()
    assert rest.startswith(joint + b"data: ")
    assert rest.endswith(b"\n\n")
    assert json.loads(rest[len(joint) + 6 :])["error"]["code"] == "engine_lost"


async def test_a_waiting_client_gets_502_when_the_engine_dies(setup):
    setup.engine.die()
    async with setup.post() as response:
        assert response.status == 502
        assert (await response.json())["error"]["code"] == "engine_lost"
        assert response.headers["retry-after"] == "1"


async def test_everything_in_flight_ends_when_the_supervisor_loses_the_engine(setup):
    stream, _ = await open_stream(setup)
    waiting = asyncio.create_task(setup.post().__aenter__())
    await setup.engine.seen.get()
    setup.gateway.lose_engine("down")
    async with asyncio.timeout(60):
        assert b"engine_lost" in await stream.read()
        assert (await waiting).status == 502
        await setup.gateway.admission.wait_idle()
    async with setup.post() as response:
        assert response.status == 503


async def test_requests_go_to_the_new_engine_when_there_is_one_again(setup):
    setup.gateway.lose_engine("down")
    setup.gateway.use_engine(setup.address)
    setup.engine.say(b'{"ok": true}')
    async with setup.post() as response:
        assert response.status == 200


async def test_requests_in_flight_finish_when_the_gateway_drains(setup):
    stream, _ = await open_stream(setup)
    drain = asyncio.create_task(setup.gateway.drain(30.0))
    await asyncio.sleep(0)
    async with setup.post() as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "draining"
    setup.engine.say(b"data: last\n\n")
    setup.engine.end()
    assert await stream.read() == b"data: last\n\n"
    assert await drain == 0


async def test_clients_are_told_when_the_drain_limit_is_over(setup):
    stream, rid = await open_stream(setup)
    waiting = asyncio.create_task(setup.post().__aenter__())
    await setup.engine.seen.get()
    assert await setup.gateway.drain(0.0) == 2
    assert b'"code":"shutting_down"' in await stream.read()
    response = await waiting
    assert response.status == 503
    assert (await response.json())["error"]["code"] == "shutting_down"
    aborted = {await setup.engine.aborts.get(), await setup.engine.aborts.get()}
    assert rid in aborted


async def test_a_failed_abort_is_counted(setup):
    response, _ = await open_stream(setup)
    setup.engine.refuse_aborts = True
    response.close()
    await asyncio.wait_for(setup.engine.aborts.get(), 60)
    await setup.gateway.close()
    assert "pdmuxd_gateway_abort_errors_total 1.0" in setup.metrics.render().decode()


async def test_504_when_the_engine_does_not_begin_to_answer_in_time(setup):
    setup.use_times(first_byte_s=0.05)
    async with setup.post() as response:
        assert response.status == 504
        assert (await response.json())["error"]["code"] == "first_byte_timeout"
        rid = response.headers["x-request-id"]
    async with asyncio.timeout(60):
        assert await setup.engine.aborts.get() == rid
        await setup.gateway.admission.wait_idle()
    assert 'pdmuxd_gateway_aborts_total{cause="first_byte_timeout"} 1.0' in setup.metrics.render().decode()


async def test_a_stream_goes_on_beyond_the_time_to_its_first_byte(setup):
    for timeout_s in (0.05, 0.5, 5.0, 50.0):  # the shortest that this machine keeps
        setup.use_times(first_byte_s=timeout_s)
        setup.engine.say(b"data: 1\n\n")
        response = await setup.post(stream=True)
        if await response.content.readany() == b"data: 1\n\n":
            break
    await asyncio.sleep(1.2 * timeout_s)
    setup.engine.say(b"data: 2\n\n")
    setup.engine.end()
    assert await response.content.read() == b"data: 2\n\n"


async def test_a_defect_is_counted_as_ours_and_not_as_a_client_that_left(setup, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("pdmuxd.daemon.gateway.intake.rewrite", broken)
    async with setup.post() as response:
        assert response.status == 500
    metrics = setup.metrics.render().decode()
    assert 'path="/v1/completions",status="500",tenant="alice"} 1.0' in metrics
    assert 'status="499"' not in metrics
    assert 'pdmuxd_gateway_aborts_total{cause="defect"} 1.0' in metrics
    assert setup.gateway.admission.in_flight == 0


async def test_503_while_the_engine_is_silent(setup):
    setup.gateway.suspect_engine(True)
    async with setup.post() as response:
        assert response.status == 503
        assert (await response.json())["error"]["code"] == "engine_unresponsive"
    setup.gateway.suspect_engine(False)
    setup.engine.say(b"{}")
    async with setup.post() as response:
        assert response.status == 200
