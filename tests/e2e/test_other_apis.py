"""The clients of OpenAI's Responses API and of Anthropic's Messages API against `pdmuxd serve`."""

import anthropic
import openai
import pytest
from daemon_process import wait_until

TEXT = "Say something."


@pytest.fixture
def claude(daemon):
    with anthropic.Anthropic(base_url=daemon.data_url, api_key=daemon.key, max_retries=0) as client:
        yield client


@pytest.fixture
def ended(daemon):
    """Waits until the engine's record of one more request was counted; yields the tokens that it had."""

    def count():
        return daemon.metric('pdmuxd_output_tokens_total{tenant="default"}')

    before = count()
    return lambda tokens: wait_until(lambda: count() - before == tokens)


def test_a_response_is_whole(daemon, ended):
    answer = daemon.client.responses.create(model=daemon.model, input=TEXT, max_output_tokens=7)
    assert answer.output_text
    assert (answer.status, answer.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert answer.usage.output_tokens == 7
    assert answer.usage.total_tokens == answer.usage.input_tokens + 7
    assert not answer.store
    ended(7)


def test_a_response_is_streamed(daemon, ended):
    turns = [{"role": "user", "content": [{"type": "input_text", "text": TEXT}]}]
    with daemon.client.responses.stream(model=daemon.model, input=turns, max_output_tokens=9) as stream:
        events = list(stream)
    assert events[-1].type == "response.incomplete"
    final = events[-1].response
    kinds = [event.type for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds.count("response.output_text.delta") == 9
    assert [event.sequence_number for event in events] == list(range(len(events)))
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert final.output_text == text
    assert final.usage.output_tokens == 9
    ended(9)


def test_a_message_is_whole(daemon, claude, ended):
    answer = claude.messages.create(
        model=daemon.model,
        max_tokens=7,
        system="Be brief.",
        messages=[{"role": "user", "content": [{"type": "text", "text": TEXT}]}],
    )
    assert answer.content[0].text
    assert (answer.stop_reason, answer.usage.output_tokens) == ("max_tokens", 7)
    ended(7)


def test_a_message_is_streamed(daemon, claude, ended):
    turns = [{"role": "user", "content": TEXT}]
    with claude.messages.stream(model=daemon.model, max_tokens=9, messages=turns) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()
    assert len(pieces) == 9
    assert final.content[0].text == "".join(pieces)
    assert (final.usage.output_tokens, final.stop_reason) == (9, "max_tokens")
    ended(9)


def test_cached_tokens_are_told_when_a_prompt_comes_again(daemon, claude):
    text = f"{TEXT} {id(claude)} " * 200

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
        (anthropic.AuthenticationError, None, "pdm_wrong"),
        (anthropic.NotFoundError, "no-such-model", None),
    ],
)
def test_the_anthropic_client_recognises_refusals(daemon, claude, error, model, key):
    client = claude.with_options(api_key=key or daemon.key)
    with pytest.raises(error) as caught:
        client.messages.create(
            model=model or daemon.model, max_tokens=2, messages=[{"role": "user", "content": TEXT}]
        )
    assert caught.value.body["type"] == "error"


def test_what_would_be_stored_is_refused_by_name(daemon):
    with pytest.raises(openai.UnprocessableEntityError, match="previous_response_id"):
        daemon.client.responses.create(model=daemon.model, input=TEXT, previous_response_id="resp_1")
    with pytest.raises(openai.InternalServerError, match="answers are not stored"):
        daemon.client.responses.retrieve("resp_1")


def test_tools_are_refused_by_the_emulated_engine_in_each_shape(daemon, claude):
    tools = [{"name": "f", "input_schema": {"type": "object"}}]
    turns = [{"role": "user", "content": TEXT}]
    with pytest.raises(anthropic.BadRequestError, match="`tools` is not supported"):
        claude.messages.create(model=daemon.model, max_tokens=2, messages=turns, tools=tools)
    with pytest.raises(openai.BadRequestError, match="`tools` is not supported"):
        daemon.client.responses.create(
            model=daemon.model, input=TEXT, tools=[{"type": "function", "name": "f", "parameters": {}}]
        )
