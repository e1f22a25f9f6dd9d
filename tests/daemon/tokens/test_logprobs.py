"""Log probabilities of tokens: each is told once, beside the text that it came with, as SGLang tells it."""

import json

import pytest
from token_vocabulary import make_tokenizer

from pdmuxd.daemon.tokens.detokenizer import IncrementalText, Vocabulary
from pdmuxd.daemon.tokens.logprobs import LogprobWriter
from pdmuxd.daemon.tokens.merge import MergedStream
from pdmuxd.daemon.tokens.plain import Direct
from pdmuxd.engine.link.token_frames import LogprobRow, LogprobSample

SPOKEN = "the quick ä fox 数 step"


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "tokenizer.json"
    make_tokenizer(path)
    return Vocabulary(path, ())


@pytest.fixture(scope="module")
def ids(vocabulary):
    return vocabulary._tokenizer.encode(SPOKEN).ids


@pytest.fixture
def writer(vocabulary):
    return LogprobWriter(vocabulary, LogprobSample(is_byte_level=True, rows=[], chat=b"", completion=b""))


def row(number, token_id):
    return LogprobRow(token_id, -0.5 * number, [token_id, 5], [-0.5 * number, -9.0])


class SGLang:
    """Its events of an answer of which it hears tokens in parts of any size."""

    def __init__(self, writer, vocabulary, ids, *, is_chat, tells_all=False):
        self.writer, self.ids, self.is_chat, self.tells_all = writer, ids, is_chat, tells_all
        self.text, self.count = IncrementalText(vocabulary, ()), 0

    def event(self, until, finish=None):
        """That of the tokens before `until` which it has not told; empty where it sends none."""
        rows = [row(number, self.ids[number]) for number in range(self.count, until)]
        said = self.text.push(self.ids[self.count : until])
        self.count = until
        value = json.loads((self.writer.chat if self.is_chat else self.writer.completion)(rows))
        if self.is_chat:
            delta = {"reasoning_content": None} | ({"content": said} if said else {})
            if not said and not self.tells_all:
                return b""
            choice = {"index": 0, "delta": delta, "logprobs": value, "finish_reason": None}
        else:
            choice = {"index": 0, "text": said, "logprobs": value, "finish_reason": finish}
        told = json.dumps({"id": "r", "choices": [choice]}, separators=(",", ":"), ensure_ascii=False)
        return f"data: {told}\n\n".encode()


async def merged(writer, vocabulary, ids, front_end, *, told_by, has_last, is_chat, tells_all):
    """`told_by` are the tokens behind which the front end speaks, besides the first and the last."""
    stream = MergedStream(
        Direct(is_chat=is_chat, has_logprobs=True),
        max_unsent_bytes=100_000,
        logprobs=writer,
        tells_all=tells_all,
    )
    choice, text = stream.choice(), IncrementalText(vocabulary, ())
    await stream.feed(front_end.event(1))
    choice.begin(text, text.push(ids[:1]), ids[:1])
    for number in range(1, len(ids) - 1):
        choice.take_logprobs([row(number, ids[number])])
        choice.push_one(ids[number])
        if number in told_by:
            await stream.feed(front_end.event(number + 1))
    if has_last:
        last = len(ids) - 1
        choice.take_logprobs([row(last, ids[last])])
        choice.push_last(ids[last])
    await stream.feed(front_end.event(len(ids), "length"))
    stream.close()
    parts = []
    while part := await stream.outbox.take():
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("has_last", [False, True])
@pytest.mark.parametrize("told_by", [(), (4,), (2, 9)])
@pytest.mark.parametrize(("is_chat", "tells_all"), [(False, False), (True, False), (True, True)])
async def test_events_are_those_of_a_front_end_that_tells_each_token(
    writer, vocabulary, ids, is_chat, tells_all, told_by, has_last
):
    form = {"is_chat": is_chat, "tells_all": tells_all}
    each = SGLang(writer, vocabulary, ids, **form)
    expected = [each.event(count) for count in range(1, len(ids))] + [each.event(len(ids), "length")]
    assert len(set(expected)) > 8
    said = await merged(
        writer,
        vocabulary,
        ids,
        SGLang(writer, vocabulary, ids, **form),
        told_by=told_by,
        has_last=has_last,
        **form,
    )
    assert said.split(b"\n\n") == b"".join(expected).split(b"\n\n")


def test_a_part_of_a_character_has_its_own_bytes(writer, ids, vocabulary):
    part = next(token for token in ids if vocabulary.single(token, skip_special_tokens=False) == "\ufffd")
    value = json.loads(writer.chat([LogprobRow(part, -1.0, [], [])]))
    whole = json.loads(writer.completion([LogprobRow(part, -1.0, [], [])]))
    (said,) = value["content"]
    assert said["token"] == "\ufffd"
    assert len(said["bytes"]) == 1
    assert bytes(said["bytes"]) in SPOKEN.encode()
    assert whole["tokens"] == [bytes(said["bytes"]).decode("latin-1")]


def test_what_is_not_sglangs_own_is_noticed(writer):
    rows = [row(1, 7), row(2, 9)]
    sample = LogprobSample(
        is_byte_level=True, rows=rows, chat=writer.chat(rows), completion=writer.completion(rows)
    )
    assert writer.is_as(sample)
    other = LogprobSample(is_byte_level=True, rows=rows, chat=writer.chat(rows[:1]), completion=b"{}")
    assert not writer.is_as(other)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_a_value_that_is_no_number_is_null(writer, ids, value):
    rows = [LogprobRow(ids[0], value, [ids[0]], [value])]

    chat = json.loads(writer.chat(rows))["content"][0]
    completion = json.loads(writer.completion(rows))

    assert (chat["logprob"], chat["top_logprobs"][0]["logprob"]) == (None, None)
    assert completion["token_logprobs"] == [None]
    assert list(completion["top_logprobs"][0].values()) == [None]
