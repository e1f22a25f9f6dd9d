"""The client gets each character once, whatever comes from which side and when."""

import asyncio
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.tokens.choice import Mismatch
from pdmuxd.daemon.tokens.detokenizer import piece_of
from pdmuxd.daemon.tokens.merge import MergedStream


class Letters:
    """Text in place of `IncrementalText`: a token is a text."""

    is_complete = True

    def push(self, token_ids):
        return "".join(token_ids)

    def push_one(self, token_id):
        return piece_of(token_id)


def completion(text, finish=None):
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    return event({"id": "r", "choices": [choice], "usage": None})


def chat(content=None, role=None, finish=None):
    delta = {"reasoning_content": None}
    delta |= {} if role is None else {"role": role}
    delta |= {} if content is None else {"content": content}
    return event({"id": "r", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def event(content):
    return b"data: " + json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def begun(stream, first):
    stream.choice().begin(Letters(), first)


def merged(**options):
    return MergedStream(**{"max_unsent_bytes": 10_000} | options)


async def rest(stream):
    stream.close()
    parts = []
    while part := await stream.outbox.take():
        parts.append(part)
    return b"".join(parts)


async def test_events_are_the_front_ends_own_when_tokens_make_them():
    stream = merged()
    begun(stream, "a")
    await stream.feed(completion("a"))
    stream.choice().push(["b"])
    stream.choice().push([""])
    stream.choice().push(['"ü\n'])
    await stream.feed(completion('b"ü\nz', finish="stop") + DONE)
    expected = [*map(completion, ("a", "b", "", '"ü\n')), completion("z", finish="stop"), DONE]
    assert await rest(stream) == b"".join(expected)
    assert stream.choice().from_tokens == 3


async def test_chat_events_are_the_front_ends_own_when_its_first_token_has_no_text():
    stream = merged()
    begun(stream, "")
    await stream.feed(chat(role="assistant", content=""))
    for token in ("", "b", ""):
        stream.choice().push_one(token)
    await stream.feed(chat("bc") + chat(finish="length") + DONE)
    expected = [chat(role="assistant", content=""), chat("b"), chat("c"), chat(finish="length"), DONE]
    assert await rest(stream) == b"".join(expected)


async def test_tokens_wait_when_they_are_faster_than_the_first_event():
    stream = merged()
    begun(stream, "a")
    stream.choice().push(["b"])
    await stream.feed(chat(role="assistant", content=""))
    stream.choice().push(["c"])
    await stream.feed(chat("a"))
    stream.choice().push(["d"])
    await stream.feed(chat("bcd") + chat(finish="stop") + DONE)
    expected = [chat(role="assistant", content=""), *map(chat, "abcd"), chat(finish="stop"), DONE]
    assert await rest(stream) == b"".join(expected)


async def test_nothing_is_there_twice_when_the_front_end_is_faster():
    stream = merged()
    await stream.feed(completion("abc"))
    begun(stream, "a")
    stream.choice().push(["b"])
    stream.choice().push(["cd"])
    await stream.feed(completion("d", finish="stop"))
    assert await rest(stream) == completion("abc") + completion("d") + completion("", finish="stop")


async def test_an_error_goes_through_as_it_is():
    stream = merged()
    begun(stream, "a")
    error = event({"error": {"message": "out of memory", "code": 500}})
    await stream.feed(completion("a"))
    stream.choice().push(["b"])
    await stream.feed(error + DONE)
    assert await rest(stream) == completion("a") + completion("b") + error + DONE


async def test_usage_and_what_else_has_no_choice_goes_through_as_it_is():
    stream = merged()
    begun(stream, "a")
    usage = event({"id": "r", "choices": [], "usage": {"total_tokens": 3}})
    await stream.feed(completion("a", finish="stop") + usage + b": a comment\n\n" + b"data: {broken\n\n")
    assert await rest(stream) == completion("a", finish="stop") + usage + b": a comment\n\ndata: {broken\n\n"


async def test_the_front_end_is_believed_when_it_ends_with_less_text():
    found = []
    stream = merged(on_mismatch=found.append)
    begun(stream, "a")
    await stream.feed(completion("a"))
    stream.choice().push(["b STOP"])
    await stream.feed(completion("b", finish="stop"))
    assert await rest(stream) == completion("a") + completion("b STOP") + completion("", finish="stop")
    assert found == []


@pytest.mark.parametrize(("first", "end", "where"), [("b", "", Mismatch.FIRST), ("a", "xyz", Mismatch.LATER)])
async def test_a_difference_is_told_when_the_texts_are_not_the_same(first, end, where):
    found = []
    stream = merged(on_mismatch=found.append)
    begun(stream, first)
    await stream.feed(completion("a"))
    stream.choice().push(["bc"])
    await stream.feed(completion(end + "d", finish="stop"))
    await rest(stream)
    assert found == [where]
    assert stream.choice().uses_tokens == (where is Mismatch.LATER)


@pytest.mark.parametrize("make", [completion, chat])
async def test_the_last_token_and_the_end_are_the_front_ends_own_when_the_length_ends_an_answer(make):
    stream = merged()
    begun(stream, "a")
    await stream.feed(make("a"))
    stream.choice().push_one("b")
    assert not stream.choice().push_last("ü"), "something waits already"
    whole = [completion("ü", finish="length")] if make is completion else [chat("ü")]
    early = b"".join([make("a"), make("b"), *whole])
    assert await stream.outbox.take() == early
    ends = [completion("bü", finish="length")] if make is completion else [chat("bü"), chat(finish="length")]
    await stream.feed(b"".join([*ends, DONE]))
    assert await rest(stream) == (DONE if make is completion else chat(finish="length") + DONE)


async def test_the_front_end_tells_the_last_token_when_the_daemon_cannot():
    stream = merged()
    begun(stream, "a")
    await stream.feed(completion("a"))
    letters = Letters()
    letters.is_complete = False  # half a character
    stream.choice()._text = letters
    assert not stream.choice().push_last("b")
    await stream.feed(completion("b", finish="length") + DONE)
    assert not stream.choice().push_last("b"), "after the end"
    assert await rest(stream) == completion("a") + completion("b", finish="length") + DONE


async def test_another_end_than_was_told_is_a_mismatch_and_is_told_too():
    found = []
    stream = merged(on_mismatch=found.append)
    begun(stream, "a")
    await stream.feed(completion("a"))
    assert stream.choice().push_last("b") is False
    await stream.feed(completion("b", finish="stop"))
    assert found == [Mismatch.LATER]
    said = [completion("a"), completion("b", finish="length"), completion("", finish="stop")]
    assert await rest(stream) == b"".join(said)


async def test_a_client_that_does_not_read_costs_bounded_memory_and_gets_the_whole_text():
    stream = merged(max_unsent_bytes=2000)
    begun(stream, "a")
    await stream.feed(completion("a"))
    for _ in range(1000):
        stream.choice().push_one("b")
    assert stream.held_bytes < 2000 + len(completion("b"))
    assert not stream.choice().uses_tokens
    assert len(await stream.outbox.take()) < 2000 + len(completion("b"))
    await stream.feed(completion(1000 * "b", finish="length"))
    said = await rest(stream)
    assert said.count(b'"length"') == 1
    text = json.loads(said.removeprefix(b"data: "))["choices"][0]["text"]
    assert len(text) + stream.choice().from_tokens == 1000


async def test_early_tokens_are_bounded_when_the_first_event_does_not_come():
    stream = merged(max_unsent_bytes=6400)
    begun(stream, "a")
    for _ in range(50):
        stream.choice().push_one("b")
    assert stream.held_bytes == 50
    for _ in range(950):
        stream.choice().push(["b"])
    assert stream.held_bytes == 0
    assert not stream.choice().uses_tokens
    await stream.feed(completion("a" + 1000 * "b", finish="length"))
    assert await rest(stream) == completion("a" + 1000 * "b", finish="length")


async def test_the_front_end_is_not_read_further_when_the_client_does_not_read():
    stream = merged(max_unsent_bytes=500)
    feeding = asyncio.create_task(stream.feed(20 * completion("a")))
    await asyncio.sleep(0)
    assert not feeding.done()
    assert await stream.outbox.take()
    await feeding


async def test_the_reason_is_told_after_what_was_there_when_the_front_end_breaks_off():
    stream = merged()
    await stream.feed(completion("a") + b"data: {")
    stream.fail(ConnectionResetError())
    assert await stream.outbox.take() == completion("a") + b"data: {"
    with pytest.raises(ConnectionResetError):
        await stream.outbox.take()


@given(data=st.data())
def test_every_character_comes_once_when_parts_are_lost_or_late(data):
    """Tokens may come before or after what the front end says of them, from some point on not at all; the
    front end may say any part of what is there, and says all at the end."""
    tokens = data.draw(st.lists(st.text('ab ü🦊"\\', max_size=3), min_size=2, max_size=12))
    make = data.draw(st.sampled_from((completion, chat)))
    text = "".join(tokens)
    lost_from = data.draw(st.integers(1, len(tokens)))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(tokens)), max_size=4)) | {1, len(tokens)})
    pieces = ["".join(tokens[first:last]) for first, last in zip([0, *cuts], cuts, strict=False)]
    from_tokens = [("token", token) for token in tokens[1:lost_from]]
    from_front_end = [("event", piece) for piece in pieces]
    if lost_from == len(tokens) and from_tokens:
        from_tokens[-1] = ("last", tokens[-1])
    order = data.draw(st.permutations([0] * len(from_tokens) + [1] * len(from_front_end)))
    sources = [iter([("begin", tokens[0]), *from_tokens]), iter(from_front_end)]

    async def run():
        stream = merged()
        for source in [0, *order]:
            kind, said = next(sources[source])
            if kind == "begin":
                stream.choice().begin(Letters(), said)
            elif kind == "token":
                stream.choice().push_one(said)
            elif kind == "last":
                stream.choice().push_last(said)
            else:
                await stream.feed(make(said))
        await stream.feed(DONE)
        return await rest(stream)

    said = asyncio.run(run()).split(b"\n\n")
    assert said[-2:] == [b"data: [DONE]", b""]
    choices = [json.loads(each.removeprefix(b"data: "))["choices"][0] for each in said[:-2]]
    assert "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices) == text
