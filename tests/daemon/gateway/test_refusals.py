"""Every refusal: its status, its shape, and that the engine never sees the request."""

import asyncio

import pytest

from pdmuxd.daemon.gateway.routes import OTHER_MODELS
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers

MAX_AUTH_FAILURES = 30
"""The gateway's own default."""
AUTH = {"Authorization": "Bearer pdm_alice"}


async def refused(request, status):
    """The error object of an answer, after checking OpenAI's shape."""
    async with request as response:
        assert response.status == status
        assert response.content_type == "application/json"
        assert len(response.headers["x-request-id"]) == 32
        error = (await response.json())["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        return error, response.headers


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_api_key"),
        ({"Authorization": "pdm_alice"}, "missing_api_key"),
        ({"Authorization": "Bearer "}, "missing_api_key"),
        ({"Authorization": "Basic pdm_alice"}, "missing_api_key"),
        ({"Authorization": "Bearer pdm_nobody"}, "invalid_api_key"),
        ({"Authorization": "Bearer \xff\xfe"}, "invalid_api_key"),
    ],
)
async def test_401_when_the_key_is_missing_or_unknown(setup, headers, code):
    request = setup.client.post(setup.url + "/v1/completions", json={}, headers=headers)
    error, answered = await refused(request, 401)
    assert (error["code"], error["type"]) == (code, "authentication_error")
    assert answered["www-authenticate"] == "Bearer"


async def test_403_when_the_tenant_is_disabled(setup):
    error, _ = await refused(setup.post(key="pdm_carol"), 403)
    assert error["code"] == "tenant_disabled"


async def test_401_when_the_key_was_revoked_in_a_newer_directory(setup, make_directory):
    empty = make_directory().__class__(version=2, tenants={}, keys={})
    setup.gateway.use_directory(empty)
    error, _ = await refused(setup.post(), 401)
    assert error["code"] == "invalid_api_key"


async def test_404_when_the_path_is_unknown(setup):
    error, _ = await refused(setup.client.post(setup.url + "/v1/other", headers=AUTH), 404)
    assert error["code"] == "unknown_path"


@pytest.mark.parametrize("path", OTHER_MODELS)
async def test_404_says_why_when_the_path_is_for_a_model_that_does_not_generate(setup, path):
    body = {"model": "llama-8b", "input": "hi"}
    error, _ = await refused(setup.client.post(setup.url + path, headers=AUTH, json=body), 404)
    assert error["code"] == "not_supported"
    assert "the model here generates text" in error["message"]


async def test_404_when_the_model_is_unknown(setup):
    error, _ = await refused(setup.post(model="gpt-x"), 404)
    assert (error["code"], error["param"]) == ("model_not_found", "model")


async def test_405_when_the_method_is_wrong(setup):
    error, headers = await refused(setup.client.get(setup.url + "/v1/completions", headers=AUTH), 405)
    assert (error["code"], headers["allow"]) == ("method_not_allowed", "POST")


async def test_413_when_the_declared_length_is_too_large(setup):
    error, _ = await refused(setup.post(prompt="x" * 5000), 413)
    assert error["code"] == "body_too_large"
    assert "data.max_body_bytes" in error["message"]


async def test_413_before_the_end_when_the_body_has_no_declared_length(setup):
    endless = asyncio.Event()

    async def body():
        yield b"x" * 5000
        await endless.wait()
        yield b""

    request = setup.client.post(setup.url + "/v1/completions", data=body(), headers=AUTH)
    error, _ = await refused(request, 413)
    endless.set()
    assert error["code"] == "body_too_large"


async def test_400_naming_the_field_when_the_body_is_wrong(setup):
    error, _ = await refused(setup.post(prompt=[1, -2]), 400)
    assert (error["param"], error["type"]) == ("prompt[1]", "invalid_request_error")
    assert setup.engine.seen.empty()


async def test_429_when_the_tenant_is_at_its_limit(setup, make_directory):
    setup.gateway.use_directory(make_directory(max_in_flight=1))
    first = asyncio.create_task(setup.post().__aenter__())
    await setup.engine.seen.get()
    error, headers = await refused(setup.post(), 429)
    assert (error["code"], headers["retry-after"]) == ("tenant_limit", "1")
    setup.engine.say(b"{}", b"{}")
    async with await first as response:
        await response.read()
    async with setup.post() as response:
        assert response.status == 200


async def test_429_when_the_node_is_at_its_limit(setup, make_directory):
    setup.gateway.use_directory(make_directory(max_in_flight=100))
    # A quarter of the ten places stays free for the others.
    tasks = [asyncio.create_task(setup.post().__aenter__()) for _ in range(8)]
    for _ in tasks:
        await setup.engine.seen.get()
    error, _ = await refused(setup.post(), 429)
    assert error["code"] == "node_limit"
    assert "has 8, its share by weight is 5" in error["message"]
    setup.engine.say(*[b"{}"] * 9)
    for task in tasks:
        (await task).release()
    async with setup.post(key="pdm_bob") as response:
        assert response.status == 200


@pytest.mark.parametrize(
    ("state", "code"), [("starting", "engine_starting"), ("down", "engine_down"), ("draining", "draining")]
)
async def test_503_when_the_engine_does_not_serve(setup, state, code):
    setup.gateway.lose_engine(state)
    error, headers = await refused(setup.post(), 503)
    assert (error["code"], headers["retry-after"], error["type"]) == (code, "1", "server_error")
    await refused(setup.client.get(setup.url + "/health"), 503)


async def test_wrong_keys_are_throttled_once_there_are_many_and_good_ones_are_not(setup):
    for expected in [401] * MAX_AUTH_FAILURES + [429, 429]:
        async with setup.post(key="pdm_nobody") as response:
            assert response.status == expected
            code = (await response.json())["error"]["code"]
            assert code == ("invalid_api_key" if expected == 401 else "too_many_auth_failures")
    setup.engine.say(b"{}")
    async with setup.post() as response:
        assert response.status == 200


async def test_wrong_keys_through_a_trusted_router_are_401_however_many_when_it_names_no_client(setup):
    """A 429 of a node opens sglang-router's circuit to it, for all tenants."""
    setup.gateway._authenticator._trusted = TrustedPeers("127.0.0.0/8")
    for _ in range(MAX_AUTH_FAILURES + 5):
        async with setup.post(key="pdm_wrong") as answer:
            assert answer.status == 401
    for expected in [401] * MAX_AUTH_FAILURES + [429]:
        async with setup.post(key="pdm_wrong", headers={"x-forwarded-for": "192.0.2.7"}) as answer:
            assert answer.status == expected
