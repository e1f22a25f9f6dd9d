"""Events made of tokens are those of the API that was asked; with SGLang's own, nothing is there twice."""

import json

import pytest

from pdmuxd.daemon.tokens.choice import Mismatch
from pdmuxd.daemon.tokens.detokenizer import piece_of
from pdmuxd.daemon.tokens.forms import Shape
from pdmuxd.daemon.tokens.merge import MergedStream
from pdmuxd.daemon.tokens.plain import Direct


class Letters:
    """Text in place of `IncrementalText`: a token is the number of a letter."""

    is_complete = True

    def push(self, token_ids):
        return "".join(map(chr, token_ids))

    def push_one(self, token_id):
        return piece_of(chr(token_id))


def merged(asked, **options):
    return MergedStream(asked, max_unsent_bytes=100_000, **options)


def begun(choice, text):
    choice.begin(Letters(), text, [ord(letter) for letter in text])


async def rest(stream):
    stream.close()
    parts = []
    while part := await stream.outbox.take():
        parts.append(part)
    return b"".join(parts)


def data(content, name=None):
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(content, separators=(',', ':'), ensure_ascii=False)}\n\n".encode()


def counted(text, tokens, finish=None, own_id="r", index=0):
    choice = {"index": index, "text": text, "logprobs": None, "finish_reason": finish}
    usage = {
        "prompt_tokens": 7,
        "total_tokens": 7 + tokens,
        "completion_tokens": tokens,
        "reasoning_tokens": 0,
    }
    return data({"id": own_id, "choices": [choice], "usage": usage})


async def test_usage_counts_each_token_where_it_is_wanted_with_each_event():
    stream = merged(Direct(is_counted=True))
    begun(stream.choice(), "ab")
    stream.choice().push_one(ord("c"))
    await stream.feed(counted("ab", 2))
    stream.choice().push_one(ord("d"))
    stream.choice().push([ord("e"), ord("f")])
    await stream.feed(counted("cdefg", 7, "stop"))
    expected = [counted("ab", 2), counted("c", 3), counted("d", 4), counted("ef", 6), counted("g", 7, "stop")]
    assert await rest(stream) == b"".join(expected)


async def test_the_end_by_length_is_told_once_with_its_usage():
    stream = merged(Direct(is_counted=True))
    begun(stream.choice(), "a")
    await stream.feed(counted("a", 1))
    stream.choice().push_last(ord("b"))
    await stream.feed(counted("b", 2, "length") + b"data: [DONE]\n\n")
    assert await rest(stream) == counted("a", 1) + counted("b", 2, "length") + b"data: [DONE]\n\n"
    assert stream.has_end


async def test_each_choice_has_its_own_place_in_its_text():
    stream = merged(Direct(is_several=True))
    for part, first in (("x", "a"), ("y", "p")):
        begun(stream.choice(part), first)
    await stream.feed(counted("a", 1, own_id="x") + counted("p", 1, own_id="y", index=1))
    stream.choice("y").push_one(ord("q"))
    stream.choice("x").push_one(ord("b"))
    await stream.feed(counted("qr", 3, "stop", "y", 1) + counted("b", 2, "stop", "x"))
    said = (await rest(stream)).decode().split("\n\n")[:-1]
    choices = [json.loads(each.removeprefix("data: "))["choices"][0] for each in said]
    texts = {index: "".join(c["text"] for c in choices if c["index"] == index) for index in (0, 1)}
    assert texts == {0: "ab", 1: "pqr"}
    assert [c["finish_reason"] for c in choices].count("stop") == 2


def message(text):
    delta = {"type": "text_delta", "text": text}
    return data({"type": "content_block_delta", "index": 0, "delta": delta}, "content_block_delta")


async def test_texts_of_a_message_are_its_deltas():
    stream = merged(Direct(Shape.MESSAGES, is_chat=True))
    opening = data({"type": "message_start"}, "message_start")
    ending = data({"type": "content_block_stop", "index": 0}, "content_block_stop")
    stop = data({"type": "message_stop"}, "message_stop")
    begun(stream.choice(), "a")
    stream.choice().push_one(ord("b"))
    await stream.feed(opening + message("a"))
    stream.choice().push_one(ord('"'))
    await stream.feed(message('b"c') + ending + stop)
    expected = [opening, *map(message, ("a", "b", '"', "c")), ending, stop]
    assert await rest(stream) == b"".join(expected)
    assert stream.has_end


def response(number, name="response.output_text.delta", **fields):
    return data({**fields, "sequence_number": number, "type": name}, name)


async def test_events_of_a_response_are_numbered_as_they_are_sent():
    stream = merged(Direct(Shape.RESPONSES, is_chat=True))
    echo = {"metadata": {"sequence_number": 99}}
    begun(stream.choice(), "a")
    await stream.feed(response(0, "response.created", response=echo) + response(1, delta="a", item_id="m"))
    for letter in "bc":
        stream.choice().push_one(ord(letter))
    end = [response(2, delta="bcd", item_id="m"), response(3, "response.completed", response=echo)]
    await stream.feed(b"".join(end))
    expected = [
        response(0, "response.created", response=echo),
        *(response(1 + i, delta=letter, item_id="m") for i, letter in enumerate("abcd")),
        response(5, "response.completed", response=echo),
    ]
    assert await rest(stream) == b"".join(expected)
    assert stream.has_end


def generated(text, tokens=None, finish=None, **more):
    ids = list(map(ord, text))
    meta = {"id": "r", "finish_reason": finish, "prompt_tokens": 7, "completion_tokens": tokens or len(ids)}
    return data({"text": text, "output_ids": ids, "meta_info": meta | {"cached_tokens": 0} | more})


async def test_each_event_of_generate_has_all_so_far():
    stream = merged(Direct(Shape.GENERATE))
    begun(stream.choice(), "a")
    stream.choice().push_one(ord("b"))
    stream.choice().push_one(ord("\n"))
    await stream.feed(generated("a", response_sent_to_client_ts=1.5))
    stream.choice().push([ord("ü"), ord('"')])
    end = generated('ab\nü"c', finish={"type": "stop"}, e2e_latency=0.5)
    await stream.feed(end)
    expected = [
        generated("a", response_sent_to_client_ts=1.5),
        generated("ab\n"),
        generated('ab\nü"'),
        end,
    ]
    assert await rest(stream) == b"".join(expected)


async def test_what_generate_has_told_already_is_not_told_again():
    stream = merged(Direct(Shape.GENERATE))
    begun(stream.choice(), "a")
    await stream.feed(generated("a"))
    stream.choice().push_one(ord("b"))
    await stream.feed(generated("ab") + generated("abcd"))
    stream.choice().push_one(ord("c"))
    stream.choice().push_one(ord("d"))
    stream.choice().push_one(ord("e"))
    expected = [generated("a"), generated("ab"), generated("abcd"), generated("abcde")]
    assert await rest(stream) == b"".join(expected)


@pytest.mark.parametrize("shape", [Shape.GENERATE, Shape.OPENAI])
async def test_a_text_that_the_front_end_does_not_say_is_noticed(shape):
    found = []
    stream = merged(Direct(shape), on_mismatch=found.append)
    said = generated if shape is Shape.GENERATE else lambda text: counted(text, 1)
    begun(stream.choice(), "x")
    await stream.feed(said("a"))
    assert found == [Mismatch.FIRST]
    assert not stream.choice().push_one(ord("b"))


async def test_the_front_end_may_say_the_first_tokens_in_several_events():
    found = []
    stream = merged(Direct(), on_mismatch=found.append)
    begun(stream.choice(), "abc")
    stream.choice().push_one(ord("d"))
    await stream.feed(counted("ab", 2) + counted("c", 3))
    await stream.feed(counted("de", 5, "stop"))
    said = (await rest(stream)).decode().split("\n\n")[:-1]
    texts = [json.loads(each.removeprefix("data: "))["choices"][0]["text"] for each in said]
    assert texts == ["ab", "c", "d", "e"]
    assert found == []


@pytest.mark.parametrize(("said", "known"), [(counted("<th", 1), [Mismatch.FIRST]), (b"", [])])
async def test_tokens_that_never_find_their_place_are_noticed_where_there_was_any_text(said, known):
    found = []
    stream = merged(Direct(is_chat=True), on_mismatch=found.append)
    begun(stream.choice(), "<think>a")
    stream.choice().push_one(ord("b"))
    await stream.feed(said + data({"error": {"message": "out of memory"}}))
    await rest(stream)
    assert found == known


def chat_event(**delta):
    return data({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})


async def test_reasoning_and_what_follows_it_have_the_forms_of_the_front_end():
    stream = merged(Direct(is_chat=True), is_parsed=True, think=("<t>", "</t>"))
    choice = stream.choice()
    begun(choice, "<t>a")
    await stream.feed(chat_event(reasoning_content=None, role="assistant", content=""))
    await stream.feed(chat_event(reasoning_content="a"))
    choice.push_one(ord("b"))
    # The front end was given the end of reasoning and what stands behind it.
    choice.hear_tokens([ord(letter) for letter in "</t>c"])
    choice.push_one(ord("d"))
    await stream.feed(chat_event(reasoning_content="b") + chat_event(reasoning_content=None, content="c"))
    choice.push_one(ord("e"))
    said = (await rest(stream)).decode()
    assert said.count("assistant") == 1
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in said.split("\n\n") if event]
    assert [d.get("reasoning_content") for d in deltas] == [None, "a", "b", None, None, None]
    assert [d.get("content") for d in deltas] == ["", None, None, "c", "d", "e"]


async def test_tokens_that_a_parser_had_to_read_are_not_said_twice():
    stream = merged(Direct(is_chat=True, has_tools=True), is_parsed=True)
    choice = stream.choice()
    begun(choice, "a")
    await stream.feed(chat_event(role="assistant", content="", reasoning_content=None))
    await stream.feed(chat_event(role=None, content="a", tool_calls=None))
    choice.push_one(ord("b"))
    choice.hear_tokens([ord("<"), ord("x")])
    await stream.feed(chat_event(role=None, content="b<x", tool_calls=None))
    choice.push_one(ord("y"))
    said = (await rest(stream)).decode()
    deltas = [json.loads(event[6:])["choices"][0]["delta"] for event in said.split("\n\n") if event]
    assert [d["content"] for d in deltas] == ["", "a", "b", "<x", "y"]
    assert all(d["tool_calls"] is None for d in deltas[1:])


async def test_an_end_of_reasoning_where_nothing_reasons_leaves_the_rest_to_the_front_end():
    stream = merged(Direct(is_chat=True), is_parsed=True, think=("<t>", "</t>"))
    choice = stream.choice()
    begun(choice, "a")
    await stream.feed(chat_event(role="assistant", content="", reasoning_content=None))
    await stream.feed(chat_event(reasoning_content=None, content="a"))
    choice.hear_tokens([ord(letter) for letter in "</t>"])
    assert not choice.uses_tokens
