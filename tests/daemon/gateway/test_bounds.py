"""What one request may ask for: refused before it costs anything, and counted as what it is."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.gateway.bounds import LARGE_BODY_BYTES, RequestBounds, check_values, count_outputs
from pdmuxd.daemon.gateway.requests import rewrite
from pdmuxd.daemon.gateway.routes import Kind
from pdmuxd.engine.core.errors import RequestError

BOUNDS = RequestBounds(max_outputs=6, max_stops=2, max_prompt_tokens=200_000, max_body_values=2000)


def outputs_of(kind, fields):
    body = json.dumps({"model": "m"} | fields).encode()
    return rewrite(kind, body, rid="r", tenant="t", bounds=BOUNDS).outputs


@pytest.mark.parametrize(
    ("kind", "fields", "outputs"),
    [
        (Kind.CHAT, {"messages": [{"role": "user", "content": "x"}]}, 1),
        (Kind.CHAT, {"messages": [{"role": "user", "content": "x"}], "n": 3}, 3),
        (Kind.CHAT, {"messages": [{"role": "user", "content": "x"}], "n": None}, 1),
        (Kind.COMPLETION, {"prompt": ["a", "b"], "n": 3}, 6),
        (Kind.COMPLETION, {"prompt": [[1], [2], [3]]}, 3),
        (Kind.COMPLETION, {"prompt": [1, 2, 3], "best_of": 4, "n": 2}, 4),
        (Kind.GENERATE, {"text": ["a", "b"], "sampling_params": {"n": 2}}, 4),
        (Kind.GENERATE, {"text": ["a", "b"], "sampling_params": [{"n": 2}, {}]}, 3),
        (Kind.GENERATE, {"input_ids": [[1], [2]], "sampling_params": None}, 2),
    ],
)
def test_a_request_takes_a_place_for_each_prompt_and_choice(kind, fields, outputs):
    assert outputs_of(kind, fields) == outputs


@pytest.mark.parametrize(
    ("kind", "fields", "param"),
    [
        (Kind.CHAT, {"messages": [{"role": "user", "content": "x"}], "n": 7}, "n"),
        (Kind.CHAT, {"messages": [{"role": "user", "content": "x"}], "n": 0}, "n"),
        (Kind.CHAT, {"messages": [{"role": "user", "content": "x"}], "n": 10**30}, "n"),
        (Kind.COMPLETION, {"prompt": ["a"] * 7}, "prompt"),
        (Kind.COMPLETION, {"prompt": ["a", "b"], "n": 4}, "prompt"),
        (Kind.COMPLETION, {"prompt": "x", "stop": ["a", "b", "c"]}, "stop"),
        (Kind.COMPLETION, {"prompt": "x", "stop": "a" * 1025}, "stop"),
        (Kind.GENERATE, {"text": "x", "sampling_params": {"stop": ["a"] * 3}}, "sampling_params.stop"),
        (Kind.GENERATE, {"text": ["x", "y"], "sampling_params": [{}, {"n": -1}]}, "sampling_params[1].n"),
        (Kind.GENERATE, {"text": "x", "sampling_params": {"n": 7}}, "sampling_params.n"),
    ],
)
def test_400_naming_the_field_when_a_request_asks_for_too_much(kind, fields, param):
    with pytest.raises(RequestError) as caught:
        outputs_of(kind, fields)
    assert (caught.value.status, caught.value.param) == (400, param)


def large(text):
    return text + b" " * (LARGE_BODY_BYTES + 1 - len(text))


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b'{"stop":[' + b'"a",' * 100_000 + b'"a"]}', "too_many_values"),
        (b'{"prompt":[' + b"[1]," * 100_000 + b"[1]]}", "too_many_values"),
        (b'{"messages":[' + b"{}," * 100_000 + b"{}]}", "too_many_values"),
        (b"{" + b'"a" :1,' * 100_000 + b'"b":1}', "too_many_values"),
        (b'{"prompt":[' + b"1," * 300_000 + b"1]}", "too_many_tokens"),
        (large(rb'{"prompt":"\\","stop":[' + b'"a",' * 3000 + b'"a"]}'), "too_many_values"),
    ],
)
def test_a_body_of_very_many_values_is_refused_before_it_is_parsed(body, code):
    with pytest.raises(RequestError) as caught:
        check_values(body, BOUNDS)
    assert (caught.value.status, caught.value.code) == (400, code)


@pytest.mark.parametrize(
    "prompt", ['{"a": [1, 2]}, ' * 40_000, "\\" * 200_001, '\\"{[' * 80_000, "é,\n" * 200_000]
)
def test_a_text_may_hold_whatever_it_likes(prompt):
    body = json.dumps({"model": "m", "prompt": prompt}).encode()
    assert len(body) > LARGE_BODY_BYTES
    check_values(body, BOUNDS)


@given(st.integers(0, 2**32))
def test_values_are_counted_as_a_parser_sees_them(seed):
    rng = random.Random(seed)
    texts = ["".join(rng.choices('a"\\{[:,', k=rng.randrange(6))) for _ in range(20)]
    body = large(json.dumps({"a": texts}).encode())
    exact = RequestBounds(max_body_values=21, max_prompt_tokens=1)
    check_values(body, exact)  # 20 texts and the key's own name
    with pytest.raises(RequestError):
        check_values(body, RequestBounds(max_body_values=20, max_prompt_tokens=1))


def test_choices_that_are_missing_count_as_one():
    assert count_outputs(3, [2]) == 4
    assert count_outputs(1, [2, 2]) == 4
    assert count_outputs(3, 2) == 6


async def test_a_request_of_many_answers_takes_as_many_places(setup):
    setup.engine.say(b"data: {}\n\n")
    async with setup.post(stream=True, prompt=["x"] * 3, n=2) as response:
        await response.content.readany()
        assert setup.gateway.admission.by_tenant() == {"alice": 6}
        async with setup.post(prompt=["x"] * 3) as refused:
            assert refused.status == 429
            assert (await refused.json())["error"]["code"] == "tenant_limit"
        assert setup.gateway.admission.by_tenant() == {"alice": 6}
        setup.engine.end()
    await setup.gateway.admission.wait_idle()


async def test_400_when_a_request_makes_more_answers_than_its_tenant_may_ever_have(setup):
    async with setup.post(prompt=["x"] * 3, n=3) as response:
        assert response.status == 400
        assert (await response.json())["error"]["code"] == "too_many_outputs"
    assert setup.gateway.admission.in_flight == 0
