"""Requests of which no token can be sampled: each is 400 by itself, and the others go on as without it.

The first of them, sampled by `top_p`, ended SGLang 0.5.23's scheduler (2026-11-25), and was 500 if greedy.
"""

import asyncio
import json
import uuid

import httpx
import not_numbers
import pytest
import sglang_plugin
from sglang_processes import KEY, Link, OurServer

NOTHING = {"ebnf": 'root ::= root "a"'}
ENDS_TOO_SOON = {"regex": "a", "min_new_tokens": 4}
KILLERS = {
    "an EBNF grammar without a first token": (NOTHING, "it allows no token"),
    "a JSON schema without a first token": ({"json_schema": '{"$ref": "#"}'}, "it allows no token"),
    "an answer that has to end and must not": (
        ENDS_TOO_SOON,
        "the grammar in regex allows no token here, besides such as min_new_tokens forbids",
    ),
    "an EBNF grammar without a second token": (
        {"ebnf": 'root ::= "a" b\nb ::= b "c"'},
        "the grammar in ebnf allows no token here",
    ),
    "every token ends the answer, and it must not end": (
        {"stop_token_ids": list(range(512)), "min_new_tokens": 4},
        "min_new_tokens forbids every token here, since stop_token_ids has all of them",
    ),
}
SAMPLED = {"greedy": {"temperature": 0}, "sampled": {"temperature": 1, "top_p": 0.5}}
NOT_NUMBERS = "the model computed no probabilities for this request: its logits are not numbers"
BESIDE = {
    "text": "a bystander",
    "sampling_params": {"max_new_tokens": 60, "temperature": 0, "ignore_eos": True},
}
AT_ONCE = 3


@pytest.fixture(scope="module")
def server(python, model, tmp_path_factory):
    folder = tmp_path_factory.mktemp("not-numbers")
    variables = sglang_plugin.install(folder, not_numbers.NAME, "not_numbers", [not_numbers.__file__])
    with OurServer(python, model, tmp_path_factory.mktemp("ours"), variables=variables) as server:
        yield server


async def generate(client, body):
    return await client.post("/generate", json=body)


async def beside(server, bodies):
    """Answers to these bodies, while others decode; the others' answers are as without them."""
    headers = {"Authorization": f"Bearer {KEY}"}
    async with (
        Link(server.link_address) as link,
        httpx.AsyncClient(base_url=server.base_url, headers=headers, timeout=120) as client,
    ):
        alone = (await generate(client, BESIDE)).json()["output_ids"]
        others = [asyncio.create_task(generate(client, BESIDE)) for _ in range(AT_ONCE)]
        await link.told(lambda stats: stats.running)
        answers = await asyncio.gather(*(generate(client, body) for body in bodies))
        for other in await asyncio.gather(*others):
            assert other.json()["output_ids"] == alone
        # SGLang's own check of the KV pool, in force here, ends an idle engine that leaks.
        await link.idle()
    assert server.process.poll() is None, server.log[-3000:]
    return answers


@pytest.mark.parametrize("how", SAMPLED.values(), ids=SAMPLED)
@pytest.mark.parametrize(("params", "reason"), KILLERS.values(), ids=KILLERS)
async def test_a_request_fails_alone_when_no_token_is_left_to_sample(server, params, reason, how):
    body = {"text": "hi", "sampling_params": {"max_new_tokens": 8, **params, **how}}
    for answer in await beside(server, [body] * AT_ONCE):
        assert answer.status_code == 400, answer.text
        assert reason in answer.json()["error"]["message"]


@pytest.mark.parametrize("how", SAMPLED.values(), ids=SAMPLED)
@pytest.mark.parametrize("place", [not_numbers.FIRST, not_numbers.LATER])
async def test_a_request_fails_alone_when_the_model_computes_no_numbers(server, place, how):
    # What restricts no token is not looked at.
    params = {"max_new_tokens": 8, "min_new_tokens": 8, **how}
    bodies = [
        {"text": f"hi {number}", "rid": f"{place}-{uuid.uuid4().hex}", "sampling_params": params}
        for number in range(AT_ONCE)
    ]
    for answer in await beside(server, bodies):
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"]["message"] == NOT_NUMBERS


NOT_FORMED = "no batch can be formed with these parameters"
UNFIT = {
    "another model's stop token": {"stop_token_ids": [128_009], "min_new_tokens": 4},
    "a negative stop token": {"stop_token_ids": [-5], "min_new_tokens": 4},
    "candidates that 32 bits do not count": {"top_k": 2**31},
}
"""The gateway refuses them; here they come straight to the engine."""


@pytest.mark.parametrize("params", UNFIT.values(), ids=UNFIT)
async def test_a_request_fails_alone_when_no_batch_can_be_formed_with_it(server, params):
    body = {"text": "hi", "sampling_params": {"max_new_tokens": 8, **params}}
    for answer in await beside(server, [body] * AT_ONCE):
        assert answer.status_code == 400, answer.text
        assert NOT_FORMED in answer.json()["error"]["message"]


async def test_a_request_fails_alone_when_the_scheduler_cannot_make_one_of_it(server):
    rids = [f"{not_numbers.NOT_MADE}-{uuid.uuid4().hex}" for _ in range(AT_ONCE)]
    bodies = [{"text": "hi", "rid": rid, "sampling_params": {"max_new_tokens": 8}} for rid in rids]
    for answer in await beside(server, bodies):
        assert answer.status_code == 500, answer.text
        assert "KeyError: 'a field that nobody knows'" in answer.text


@pytest.mark.parametrize("how", SAMPLED.values(), ids=SAMPLED)
async def test_a_request_fails_alone_when_its_grammar_fails(server, how):
    body = {"text": "hi", "sampling_params": {"max_new_tokens": 8, "regex": not_numbers.FAILING, **how}}
    good = {"text": "hi", "sampling_params": {"max_new_tokens": 4, "regex": "(ab)*", "min_new_tokens": 4}}
    *failed, served = await beside(server, [*[body] * AT_ONCE, good])
    for answer in failed:
        assert answer.status_code == 400, answer.text
        assert "the grammar in regex failed: RuntimeError: the matcher is lost" in answer.text
    assert served.status_code == 200, served.text


async def test_a_stream_that_has_begun_ends_as_aborted_when_its_grammar_has_no_next_token(server):
    """SGLang's own form of it, which has no place for the reason."""
    body = {
        "model": "tiny",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
        "max_tokens": 8,
        "regex": "a",
        "min_tokens": 4,
        "top_p": 0.5,
    }
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=server.base_url, headers=headers, timeout=120) as client:
        answer = await client.post("/v1/chat/completions", json=body)
    *_, last, done = (line for line in answer.text.splitlines() if line)
    assert json.loads(last.removeprefix("data: "))["choices"][0]["finish_reason"] == "abort"
    assert done == "data: [DONE]"
    assert server.process.poll() is None
