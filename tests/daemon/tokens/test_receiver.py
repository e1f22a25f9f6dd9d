"""Many answers through one receiver: each gets its own text, whatever becomes of the others."""

import asyncio
import json
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from token_vocabulary import TEXTS, make_tokenizer

from pdmuxd.daemon.tokens.receiver import TokenReceiver
from pdmuxd.engine.link.token_frames import Begun, TokenSender, TokenStep
from pdmuxd.engine.link.token_frames import Vocabulary as Told

WAIT_S = 60
HEAD = 'data: {"id":"%s","choices":[{"index":0,"text":'
STREAMS = 5
SPOKEN = TEXTS[0] + "äöü 数字 🦊🦊 " + TEXTS[1]


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return make_tokenizer(tmp_path_factory.mktemp("model") / "tokenizer.json")


def event(rid, text, finish=None):
    reason = "null" if finish is None else f'"{finish}"'
    said = json.dumps(text, ensure_ascii=False)
    return (HEAD % rid + said + ',"finish_reason":' + reason + "}]}\n\n").encode()


class Answer:
    """What the engine knows of one, and what its client got."""

    def __init__(self, number, stream, ids, tokenizer):
        self.rid, self.number, self.stream, self.ids = f"r{number}", number, stream, ids
        self.text = tokenizer.decode(ids[:1])
        self.whole = tokenizer.decode(ids)
        self.said = 1
        self.has_left = False
        self.got = []

    async def end(self):
        """The front end brings the whole text, as ever."""
        rest = self.whole[len(self.text) :]
        feeding = asyncio.create_task(self.stream.feed(event(self.rid, rest, "length")))
        while not feeding.done() or self.stream.outbox.held_bytes:
            self.got.append(await self.stream.outbox.take())
        await feeding

    def check(self):
        said = b"".join(self.got).decode()
        events = [json.loads(one.removeprefix("data: ")) for one in said.split("\n\n") if one]
        assert {one["id"] for one in events} == {self.rid}
        text = "".join(one["choices"][0]["text"] for one in events)
        assert text == (self.whole if events[-1]["choices"][0]["finish_reason"] else text)
        assert self.whole.startswith(text)


def turns():
    """What happens one after the other: steps of some answers, some of which leave, lose a step, or end."""
    number = st.integers(0, STREAMS - 1)
    step = st.tuples(
        st.just("step"), st.lists(st.tuples(number, st.integers(1, 3)), min_size=1, max_size=STREAMS)
    )
    rare = st.sampled_from([("lose", 0), ("read", 0), *(("leave", n) for n in range(STREAMS))])
    return st.lists(st.one_of(step, step, step, rare), max_size=30)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(what=turns())
def test_each_client_gets_its_own_text_whatever_becomes_of_the_others(tokenizer, what):
    asyncio.run(_run(tokenizer, what))


async def _run(tokenizer, what):
    ids = tokenizer.encode(SPOKEN).ids
    with tempfile.TemporaryDirectory(prefix="pdm") as folder:
        path = Path(folder) / "tokenizer.json"
        tokenizer.save(str(path))
        receiver = TokenReceiver(Path(folder) / "s", max_unsent_bytes=10**6)
        sender = TokenSender(Path(folder) / "s", lambda: Told(protocol=1, tokenizer_path=str(path)))
        try:
            async with asyncio.timeout(WAIT_S):
                while not sender.is_ready or not receiver.is_ready:
                    sender.poll()
                    await asyncio.sleep(0.001)
            await _serve(receiver, sender, tokenizer, ids, what)
        finally:
            sender.close()
            receiver.close()


async def _serve(receiver, sender, tokenizer, ids, what):
    answers = [Answer(n, receiver.open(f"r{n}"), ids[n:] + ids[:n], tokenizer) for n in range(STREAMS)]
    begun = [Begun(one.number + 1, one.rid, (), tuple(one.ids[:1]), True) for one in answers]
    sender.send(TokenStep(begun=begun, streams=[], token_ids=[], several=[]))
    for one in answers:
        await one.stream.feed(event(one.rid, one.text))
    for kind, said in what:
        if kind == "step":
            _step(sender, answers, said)
        elif kind == "lose":
            for one in answers:
                one.said += 1
            sender._steps += 1  # one that the daemon did not take
        elif kind == "read":
            receiver.read()
        else:
            answers[said].has_left = True
            receiver.leave(answers[said].rid)
    for one in answers:
        if not one.has_left:
            await one.end()
            one.check()
            receiver.leave(one.rid)
        else:
            one.got = [await one.stream.outbox.take()]
            one.check()
    assert receiver.open_streams == receiver.counts.held_bytes == 0
    assert not receiver._by_number
    assert not receiver._numbers
    assert receiver.mismatches == 0
    kinds = {kind for kind, _ in what}
    assert receiver.counts.tokens or kinds & {"leave", "lose"} or "step" not in kinds


def _step(sender, answers, wanted):
    """One token of an answer, or several."""
    streams, token_ids, several = [], [], []
    for number, count in dict(wanted).items():
        one = answers[number]
        new = one.ids[one.said : one.said + count]
        one.said += len(new)
        if len(new) == 1:
            streams.append(number + 1)
            token_ids.append(new[0])
        elif new:
            several.append((number + 1, new))
    sender.send(TokenStep(begun=[], streams=streams, token_ids=token_ids, several=several))
