"""The Responses and the Messages API: whose request it is goes in a header, errors have their API's shape."""

import asyncio
import json

import pytest

from pdmuxd.daemon.gateway.observer import NobodyWatches
from pdmuxd.engine.link.request_tag import TAG_HEADER, decode_tag

RESPONSES, MESSAGES = "/v1/responses", "/v1/messages"
BODIES = {
    RESPONSES: {"model": "test-model", "input": "x"},
    MESSAGES: {"model": "test-model", "max_tokens": 5, "messages": [{"role": "user", "content": "x"}]},
}
PREAMBLES = {
    RESPONSES: b'event: response.created\ndata: {"type":"response.created"}\n\n',
    MESSAGES: b'event: message_start\ndata: {"type":"message_start"}\n\n',
}
TOKENS = {
    RESPONSES: b'event: response.output_text.delta\ndata: {"type":"response.output_text.delta"}\n\n',
    MESSAGES: b'event: content_block_delta\ndata: {"type":"content_block_delta"}\n\n',
}
ENDS = {
    RESPONSES: b'event: response.completed\ndata: {"type":"response.completed"}\n\n',
    MESSAGES: b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
}
BOTH = pytest.mark.parametrize("path", [RESPONSES, MESSAGES])


class Watching(NobodyWatches):
    def __init__(self):
        self.said = []
        self.delivered = asyncio.get_running_loop().create_future()

    def on_first_byte(self, request_id):
        self.said.append("first")

    def on_answered(self, request_id, *, status, delivered, end="", error=""):
        self.delivered.set_result(delivered)


@pytest.fixture
def post(setup):
    def post(path, *, headers=None, **fields):
        given = headers or {"Authorization": "Bearer pdm_alice"}
        return setup.client.post(setup.url + path, json=BODIES[path] | fields, headers=given)

    return post


@BOTH
async def test_the_tag_says_whose_request_it_is(setup, post, path):
    setup.engine.say(b"{}")
    async with post(path, cache_salt="ä", extra_key="mine") as answer:
        assert answer.status == 200
        tag = decode_tag(setup.engine.headers[TAG_HEADER])
        assert tag.rid == answer.headers["x-request-id"]
    assert tag.custom_params == {"pdmuxd_tenant": "alice"}
    assert tag.extra_key == "tenant/alice/ämine"


@BOTH
async def test_what_is_not_a_clients_to_set_stays_behind(setup, post, path):
    setup.engine.say(b"{}")
    given = {"rid": "r", "priority": 9, "session_id": "s", "request_id": "resp_r", "bootstrap_host": "h"}
    async with post(path, custom_params={"pdmuxd_tenant": "bob"}, temperature=0.5, **given) as answer:
        assert answer.status == 200
    seen = await setup.engine.seen.get()
    stored = {"store": False} if path == RESPONSES else {}
    assert seen == BODIES[path] | {"temperature": 0.5} | stored


async def test_a_clients_own_tag_stays_behind(setup, post):
    forged = {"Authorization": "Bearer pdm_alice", TAG_HEADER: "forged"}
    setup.engine.say(b"{}", b"{}")
    async with setup.post(headers={TAG_HEADER: "forged"}):
        assert TAG_HEADER not in {name.lower() for name in setup.engine.headers}
    async with post(MESSAGES, headers=forged):
        assert decode_tag(setup.engine.headers[TAG_HEADER]).custom_params == {"pdmuxd_tenant": "alice"}


@BOTH
async def test_times_are_those_of_tokens_and_not_of_what_is_around_them(setup, post, path):
    watching = setup.gateway._observer = Watching()
    setup.engine.say(PREAMBLES[path], TOKENS[path])
    async with post(path, stream=True) as answer:
        first = await answer.content.readexactly(len(PREAMBLES[path] + TOKENS[path]))
        assert first == PREAMBLES[path] + TOKENS[path]
        assert watching.said == ["first"]
        for event in (TOKENS[path], ENDS[path]):
            setup.engine.say(event)
            assert await answer.content.readexactly(len(event)) == event
        setup.engine.end()
        assert await answer.read() == b""
    delivered = await watching.delivered
    assert sum(count for _, count in delivered.gap_counts) == 1


@BOTH
async def test_nothing_is_held_back_when_an_answer_ends_without_a_token(setup, post, path):
    setup.engine.say(PREAMBLES[path], ENDS[path])
    setup.engine.end()
    async with post(path, stream=True) as answer:
        assert await answer.read() == PREAMBLES[path] + ENDS[path]


@BOTH
async def test_503_when_the_engine_refuses_after_what_it_sends_first(setup, post, path):
    said = {"error": {"message": "max_wait: it has waited long enough"}}
    setup.engine.say(PREAMBLES[path], b"event: error\ndata: " + json.dumps(said).encode() + b"\n\n")
    setup.engine.end()
    async with post(path, stream=True) as answer:
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await answer.json())["error"]["code"] == "max_wait"


async def test_503_when_the_engine_refuses_a_message_without_a_word(setup, post):
    setup.engine.status = 503
    setup.engine.say(
        b'{"type":"error","error":{"type":"overloaded_error","message":"Internal server error"}}'
    )
    async with post(MESSAGES) as answer:
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        assert (await answer.json())["error"]["code"] == "not_begun"


async def test_503_when_the_engine_refuses_a_streamed_message_as_if_it_had_ended_well(setup, post):
    started = b'{"type":"message_start","message":{"usage":{"input_tokens":0,"output_tokens":0}}}'
    delta = b'{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":%d}}'
    head, tail = b"event: message_start\ndata: " + started, b"event: message_stop\ndata: {}\n\n"
    for tokens, status in ((0, 503), (1, 200)):
        setup.engine.say(b"\n\n".join((head, b"event: message_delta\ndata: " + delta % tokens, tail)))
        setup.engine.end()
        async with post(MESSAGES, stream=True) as answer:
            assert answer.status == status
            if status == 503:
                assert (await answer.json())["error"]["code"] == "not_begun"


@BOTH
async def test_the_engine_is_told_when_the_client_leaves(setup, post, path):
    setup.engine.say(TOKENS[path])
    async with post(path, stream=True) as answer:
        await answer.content.readany()
        rid = answer.headers["x-request-id"]
    assert await setup.engine.aborts.get() == rid


async def test_the_end_of_a_message_is_in_its_own_shape_when_the_engine_dies(setup, post):
    setup.engine.say(TOKENS[MESSAGES])
    setup.engine.die()
    async with post(MESSAGES, stream=True) as answer:
        *_, event = (await answer.read()).split(b"\n\n")[:-1]
    name, _, data = event.partition(b"\n")
    assert name == b"event: error"
    error = json.loads(data.removeprefix(b"data: "))
    assert (error["type"], error["error"]["code"]) == ("error", "engine_lost")


@pytest.mark.parametrize(
    ("headers", "status", "kind"),
    [
        ({"X-Api-Key": "pdm_alice"}, 400, "invalid_request_error"),
        ({"X-Api-Key": "pdm_wrong"}, 401, "authentication_error"),
        ({"X-Api-Key": "pdm_alice", "Authorization": "Bearer pdm_wrong"}, 401, "authentication_error"),
        ({"X-Api-Key": "pdm_carol"}, 403, "permission_error"),
    ],
)
async def test_errors_of_messages_have_anthropics_shape(post, headers, status, kind):
    async with post(MESSAGES, headers=headers, max_tokens=0) as answer:
        assert answer.status == status
        body = await answer.json()
    assert (body["type"], body["error"]["type"]) == ("error", kind)


@pytest.mark.parametrize(
    ("path", "fields", "param"),
    [
        (RESPONSES, {"input": 5}, "input"),
        (RESPONSES, {"input": []}, "input"),
        (RESPONSES, {"model": None}, "model"),
        (RESPONSES, {"max_output_tokens": 0}, "max_output_tokens"),
        (RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"),
        (RESPONSES, {"conversation": {"id": "c"}}, "conversation"),
        (RESPONSES, {"background": True}, "background"),
        (RESPONSES, {"stop": ["x"] * 65}, "stop"),
        (RESPONSES, {"extra_key": ["a", "b"]}, "extra_key"),
        (MESSAGES, {"max_tokens": 0}, "max_tokens"),
        (MESSAGES, {"messages": []}, "messages"),
        (MESSAGES, {"messages": [{"role": "user"}]}, "messages[0]"),
        (MESSAGES, {"stop_sequences": ["x"] * 65}, "stop_sequences"),
        (MESSAGES, {"stream": "yes"}, "stream"),
    ],
)
async def test_400_naming_the_field_when_a_body_is_wrong(setup, post, path, fields, param):
    async with post(path, **fields) as answer:
        assert answer.status == 400
        assert (await answer.json())["error"]["param"] == param
    assert setup.engine.seen.empty()
