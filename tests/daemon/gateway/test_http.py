"""HTTP as clients speak it: compressed bodies, HEAD, and one dialect of errors whoever refuses."""

import asyncio
import gzip
import json
import zlib

import pytest

AUTH = {"Authorization": "Bearer pdm_alice"}
BODY = json.dumps({"model": "test-model", "prompt": "x"}).encode()
OLD_FORM = {
    "object": "error",
    "message": "The input (9 tokens) is longer than the model's context length (8 tokens).",
    "type": "BadRequestError",
    "param": None,
    "code": 400,
}


def send(setup, data, encoding, path="/v1/completions"):
    return setup.client.post(setup.url + path, data=data, headers=AUTH | {"Content-Encoding": encoding})


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "x-gzip"])
async def test_a_gzip_body_is_read(setup, encoding):
    setup.engine.say(b"{}")
    async with send(setup, gzip.compress(BODY), encoding) as answer:
        assert answer.status == 200
    assert (await setup.engine.seen.get())["prompt"] == "x"


@pytest.mark.parametrize(
    ("data", "encoding", "status", "code"),
    [
        (gzip.compress(b" " * 50_000_000, mtime=0), "gzip", 413, "body_too_large"),
        (gzip.compress(BODY, mtime=0)[:-5], "gzip", 400, "invalid_gzip"),
        (gzip.compress(BODY, mtime=0) + b"more", "gzip", 400, "invalid_gzip"),
        (BODY, "gzip", 400, "invalid_gzip"),
        (zlib.compress(BODY), "deflate", 415, "unsupported_encoding"),
        (BODY, "br", 415, "unsupported_encoding"),
        (gzip.compress(gzip.compress(BODY, mtime=0), mtime=0), "gzip, gzip", 415, "unsupported_encoding"),
    ],
)
async def test_a_body_that_cannot_be_read_is_refused_by_name(setup, data, encoding, status, code):
    if len(data) > 4096:
        data = gzip.compress(b" " * 3_000_000)
    assert len(data) <= 4096, "the limit of bodies as they come does not refuse it first"
    async with send(setup, data, encoding) as answer:
        assert answer.status == status
        assert (await answer.json())["error"]["code"] == code
    assert setup.engine.seen.empty()


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/models/test-model", "/get_model_info"])
async def test_head_is_get_without_a_body(setup, path):
    async with setup.client.get(setup.url + path, headers=AUTH) as got:
        body = await got.read()
    async with setup.client.head(setup.url + path, headers=AUTH) as answer:
        assert (answer.status, await answer.read()) == (got.status, b"")
        assert int(answer.headers["content-length"]) == len(body)


async def test_head_of_a_path_that_takes_post_is_405(setup):
    async with setup.client.head(setup.url + "/v1/completions", headers=AUTH) as answer:
        assert (answer.status, answer.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/completions", {"prompt": "x"}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}]}),
        ("/v1/responses", {"input": "x"}),
        ("/v1/messages", {"max_tokens": 1, "messages": [{"role": "user", "content": "x"}]}),
        ("/generate", {"text": "x"}),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_engine_refuses_is_said_in_the_apis_own_shape(setup, path, fields, stream):
    setup.engine.status = 400
    setup.engine.say(json.dumps(OLD_FORM).encode())
    if stream:
        setup.engine.stream = setup.engine.whole
    body = {"model": "test-model", "stream": stream, **fields}
    async with setup.client.post(setup.url + path, json=body, headers=AUTH) as answer:
        assert answer.status == 400
        said = await answer.json()
        assert len(answer.headers["x-request-id"]) == 32
    error = said["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["type"] == "invalid_request_error"
    assert "maximum context length is 8 tokens" in error["message"]
    assert error["param"] in fields
    assert said.get("type") == ("error" if path == "/v1/messages" else None)
    async with asyncio.timeout(30):
        await setup.gateway.admission.wait_idle()


async def test_what_is_not_served_below_messages_is_said_in_anthropics_shape(setup):
    async with setup.client.post(setup.url + "/v1/messages/batches", json={}, headers=AUTH) as answer:
        assert answer.status == 501
        assert (await answer.json())["type"] == "error"
