"""What the engine's tokenizer answers: checked and counted as all else, and in no limit of tokens."""

from dataclasses import replace

import pytest

from pdmuxd.controlplane.tenants.limit_values import Limit

AUTH = {"Authorization": "Bearer pdm_alice"}
COUNT, TOKENIZE, DETOKENIZE = "/v1/messages/count_tokens", "/tokenize", "/detokenize"
TURNS = [{"role": "user", "content": "hi"}]
GOOD = {
    COUNT: {"model": "test-model", "messages": TURNS},
    TOKENIZE: {"prompt": "hi", "add_special_tokens": False},
    DETOKENIZE: {"tokens": [1, 2]},
}


@pytest.mark.parametrize("path", GOOD)
async def test_the_engines_answer_is_passed_on_and_its_own_fields_are_left_out(setup, path):
    setup.engine.say(b'{"count":5}')
    body = GOOD[path] | {"rid": "x", "priority": 5}
    async with setup.client.post(setup.url + path, json=body, headers=AUTH) as answer:
        assert (answer.status, await answer.read()) == (200, b'{"count":5}')
    assert await setup.engine.seen.get() == GOOD[path]
    assert setup.gateway.admission.in_flight == 0


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        (COUNT, {"model": "test-model"}, 400, "messages"),
        (COUNT, {"model": "test-model", "messages": []}, 400, "messages"),
        (COUNT, {"model": "other", "messages": TURNS}, 404, "model"),
        (TOKENIZE, {"prompt": 5}, 400, "prompt"),
        (DETOKENIZE, {}, 400, "tokens"),
        (DETOKENIZE, {"tokens": [-1]}, 400, "tokens[0]"),
        (DETOKENIZE, {"tokens": [2**40]}, 400, "tokens[0]"),
    ],
)
async def test_a_wrong_field_is_refused_by_name(setup, path, body, status, param):
    async with setup.client.post(setup.url + path, json=body, headers=AUTH) as answer:
        assert answer.status == status
        said = await answer.json()
    assert said["error"]["param"] == param
    assert said.get("type") == ("error" if path == COUNT else None)
    assert setup.engine.seen.empty()


@pytest.mark.parametrize("path", GOOD)
async def test_a_key_is_needed(setup, path):
    async with setup.client.post(setup.url + path, json=GOOD[path]) as answer:
        assert answer.status == 401


async def test_it_takes_a_place_in_flight(setup, make_directory):
    setup.gateway.use_directory(make_directory(max_in_flight=1))
    request = setup.post(stream=True)
    setup.engine.say(b"data: 1\n\n")
    async with request as response:
        await response.content.readany()
        async with setup.client.post(setup.url + TOKENIZE, json=GOOD[TOKENIZE], headers=AUTH) as answer:
            assert answer.status == 429
        setup.engine.end()


@pytest.mark.parametrize("path", GOOD)
async def test_it_counts_among_the_requests_of_a_minute_and_not_among_tokens(setup, make_directory, path):
    limits = (Limit(name="requests_per_min", value=1), Limit(name="tokens_per_min", value=1))
    snapshot = make_directory()
    alice = replace(snapshot.tenants["alice"], limits=limits)
    setup.gateway.use_directory(replace(snapshot, tenants={**snapshot.tenants, "alice": alice}))
    statuses = []
    setup.engine.say(b'{"count":5}')
    for _ in range(2):
        async with setup.client.post(setup.url + path, json=GOOD[path], headers=AUTH) as answer:
            statuses.append(answer.status)
            said = await answer.json()
    assert statuses == [200, 429]
    assert "requests_per_min" in said["error"]["message"]
    assert setup.gateway.admission.in_flight == 0


@pytest.mark.parametrize("status", [200, 404])
async def test_the_tokenizer_is_passed_on_or_it_is_said_where_it_is(setup, status):
    setup.engine.status = status
    url = setup.url + "/tokenizer.json"
    async with setup.client.get(url) as answer:
        assert answer.status == 401
    async with setup.client.get(url, headers=AUTH) as answer:
        said = await answer.json()
    assert answer.status == status
    if status == 404:
        assert said["error"]["code"] == "not_supported"
        assert "the model's folder" in said["error"]["message"]
