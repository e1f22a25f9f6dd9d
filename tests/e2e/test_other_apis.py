"""What the clients of the Responses and the Messages API are told beside an answer."""

import uuid

import openai
import pytest

TEXT = "Say something."


@pytest.fixture
def claude(daemon):
    import anthropic  # takes a second: not in each process that collects the tests

    with anthropic.Anthropic(base_url=daemon.data_url, api_key=daemon.key, max_retries=0) as client:
        yield client


def test_cached_tokens_are_told_when_a_prompt_comes_again(daemon, claude):
    text = f"{TEXT} {uuid.uuid4()} " * 200

    def ask():
        turns = [{"role": "user", "content": text}]
        return claude.messages.create(model=daemon.model, max_tokens=2, messages=turns).usage

    first, second = ask(), ask()
    assert first.cache_read_input_tokens == 0
    assert second.cache_read_input_tokens > 0
    assert second.input_tokens + second.cache_read_input_tokens == first.input_tokens


@pytest.mark.parametrize(
    ("error", "model", "key"),
    [
        ("AuthenticationError", None, "pdm_wrong"),
        ("NotFoundError", "no-such-model", None),
    ],
)
def test_the_anthropic_client_recognises_refusals(daemon, claude, error, model, key):
    import anthropic

    client = claude.with_options(api_key=key or daemon.key)
    with pytest.raises(getattr(anthropic, error)) as caught:
        client.messages.create(
            model=model or daemon.model, max_tokens=2, messages=[{"role": "user", "content": TEXT}]
        )
    assert caught.value.body["type"] == "error"


def test_what_would_be_stored_is_refused_by_name(daemon):
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        daemon.client.responses.create(model=daemon.model, input=TEXT, previous_response_id="resp_1")
    with pytest.raises(openai.InternalServerError, match="answers are not stored"):
        daemon.client.responses.retrieve("resp_1")


def test_the_emulated_engine_calls_tools_in_both_apis(daemon, claude):
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    turns = [{"role": "user", "content": TEXT}]
    answer = claude.messages.create(model=daemon.model, max_tokens=64, messages=turns, tools=tools)
    assert answer.content[0].type == "tool_use"
    called = daemon.client.responses.create(
        model=daemon.model, input=TEXT, tools=[{"type": "function", "name": "f", "parameters": {}}]
    )
    assert [(item.type, item.name) for item in called.output] == [("function_call", "f")]
