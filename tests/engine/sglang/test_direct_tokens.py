"""Which tokens go to the daemon, and which go SGLang's own way, on a stand-in of its streamer."""

from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from pdmuxd.engine.link.token_frames import LogprobRow
from pdmuxd.engine.sglang.internals.direct_tokens import CALLS, PARSED_KEY, TOKENS_KEY, DirectStreamer
from pdmuxd.engine.sglang.internals.parsers import Watch, tokens_with


class Streamer:
    """Sends what was not sent, as SGLang's does; by request the numbers of tokens that were sent."""

    def __init__(self):
        self.sent = {}
        self.holds_first = False

    def stream_output(self, requests, return_logprob, skip=None):
        for request in requests:
            if request is skip or (self.holds_first and request.finished_reason is None):
                continue
            request.send_token_offset = len(request.output_ids)
            self.sent.setdefault(request.rid, []).append(len(request.output_ids))


class Sender:
    def __init__(self):
        self.is_ready = True
        self.takes = True
        self.steps = []
        self.number = 0

    def poll(self):
        pass

    def next_stream(self):
        self.number += 1
        return self.number

    def send(self, step):
        if self.takes:
            self.steps.append(step)
        return self.takes


@dataclass
class Request:
    rid: str = "a"
    wants: bool = True
    stream: bool = True
    stops: tuple = ()
    output_ids: list = field(default_factory=list)
    origin_input_ids_unpadded: tuple = (1, 2, 3)
    finished_reason: object = None
    send_token_offset: int = 0
    is_held: bool = False
    return_logprob: bool = False
    logprob: object = None

    def __post_init__(self):
        self.sampling_params = SimpleNamespace(
            stop_strs=self.stops,
            skip_special_tokens=True,
            stream_interval=None,
            custom_params={TOKENS_KEY: self.wants},
        )

    def check_match_stop_str_prefix(self):
        return self.is_held

    def makes(self, *tokens):
        self.output_ids += tokens


@dataclass
class Rig:
    sglang: Streamer = field(default_factory=Streamer)
    sender: Sender = field(default_factory=Sender)
    unfinished: tuple = ()

    def text_of(self, tokens, skip_special_tokens):
        return "\ufffd" if tokens[-1] in self.unfinished else "a"

    def __post_init__(self):
        self.streamer = DirectStreamer(self.sglang, self.sender, self.text_of)

    def step(self, *requests, token=7, skip=None):
        for request in requests:
            request.makes(token)
        self.streamer.stream_output(list(requests), False, skip)


@pytest.fixture
def rig():
    return Rig()


def test_the_first_token_and_the_end_go_sglangs_way_and_the_others_to_the_daemon(rig):
    request = Request()
    for token in (10, 11, 12):
        rig.step(request, token=token)
    request.finished_reason = "length"
    rig.step(request, token=13)
    assert rig.sglang.sent == {"a": [1, 4]}
    begun, *others = rig.sender.steps
    assert [(b.request_id, b.context, b.token_ids) for b in begun.begun] == [("a", (1, 2, 3), (10,))]
    assert [(step.streams, step.token_ids) for step in others] == [([1], [11]), ([1], [12])]


def test_log_probabilities_come_with_their_tokens_when_they_were_asked_for(rig):
    kept = SimpleNamespace(
        top_logprobs_num=2,
        output_token_logprobs_idx=[10, 11, 12, 13],
        output_token_logprobs_val=[-0.1, -0.2, -0.3, -0.4],
        output_top_logprobs_idx=[[10, 1], [11, 1], [12, 1], [13, 1]],
        output_top_logprobs_val=[[-0.1, -3.0], [-0.2, -3.1], [-0.3, -3.2], [-0.4, -3.3]],
    )
    request = Request(stops=("STOP",), return_logprob=True, logprob=kept)
    other = Request(rid="b")
    rig.step(request, other, token=10)
    rig.step(request, other, token=11)
    request.is_held = True
    rig.step(request, token=12)
    request.is_held = False
    rig.step(request, token=13)
    *_, one, two = rig.sender.steps
    row = LogprobRow
    assert one.logprobs == [(1, [row(11, -0.2, [11, 1], [-0.2, -3.1])])]
    assert two.several == [(1, [12, 13])]
    assert two.logprobs == [(1, [row(12, -0.3, [12, 1], [-0.3, -3.2]), row(13, -0.4, [13, 1], [-0.4, -3.3])])]


@pytest.mark.parametrize("short", ["output_token_logprobs_val", "output_top_logprobs_idx"])
def test_an_answer_without_a_value_for_each_token_goes_sglangs_way_from_there(rig, short):
    values = {
        "output_token_logprobs_idx": [10, 11, 12],
        "output_token_logprobs_val": [-0.1, -0.2, -0.3],
        "output_top_logprobs_idx": [[10], [11], [12]],
        "output_top_logprobs_val": [[-0.1], [-0.2], [-0.3]],
    }
    kept = SimpleNamespace(top_logprobs_num=1, **values | {short: values[short][:2]})
    request, other = Request(return_logprob=True, logprob=kept), Request(rid="b")
    for token in (10, 11, 12, 13):
        rig.step(request, other, token=token)
    assert rig.sglang.sent == {"a": [1, 3, 4], "b": [1]}
    _, second, third, fourth = rig.sender.steps
    assert [(number, len(rows)) for number, rows in second.logprobs] == [(1, 1)]
    assert [step.streams for step in (third, fourth)] == [[2], [2]]


class FINISH_LENGTH:  # noqa: N801 - SGLang's name
    pass


class FINISH_MATCHED_TOKEN:  # noqa: N801
    pass


@pytest.mark.parametrize(
    ("reason", "stops", "last"),
    [(FINISH_LENGTH(), (), [(1, 9)]), (FINISH_LENGTH(), ("x",), []), (FINISH_MATCHED_TOKEN(), (), [])],
    ids=["length", "stops", "token"],
)
def test_the_last_token_goes_both_ways_when_the_length_ends_the_answer(rig, reason, stops, last):
    request = Request(stops=stops)
    rig.step(request)
    rig.step(request)
    request.finished_reason = reason
    rig.step(request, token=9)
    assert rig.sglang.sent == {"a": [1, 3]}
    assert [step.last for step in rig.sender.steps if step.last] == [last] * bool(last)


@pytest.mark.parametrize("request_", [Request(wants=False), Request(stream=False)])
def test_everything_goes_sglangs_way_when_nobody_asked_for_tokens(rig, request_):
    rig.step(request_)
    rig.step(request_)
    assert rig.sglang.sent == {"a": [1, 2]}
    assert rig.sender.steps == []


def test_everything_goes_sglangs_way_when_the_daemon_was_not_there_at_the_first_token(rig):
    request = Request()
    rig.sender.is_ready = False
    rig.step(request)
    rig.sender.is_ready = True
    rig.step(request)
    assert rig.sglang.sent == {"a": [1, 2]}


def test_tokens_that_may_begin_a_stop_text_come_together_when_they_did_not(rig):
    request = Request(stops=("STOP",))
    rig.step(request)
    request.is_held = True
    rig.step(request, token=8)
    request.is_held = False
    rig.step(request, token=9)
    assert [step.several for step in rig.sender.steps] == [[], [(1, [8, 9])]]


def test_an_answer_begins_later_when_sglang_holds_its_first_token_back(rig):
    request = Request(stops=("STOP",))
    rig.sglang.holds_first = True
    rig.step(request, token=8)
    rig.sglang.holds_first = False
    rig.step(request, token=9)
    rig.step(request, token=10)
    assert [begun.token_ids for step in rig.sender.steps for begun in step.begun] == [(8, 9)]
    assert rig.sender.steps[-1].token_ids == [10]


def test_an_answer_begins_later_when_its_first_token_is_half_a_character(rig):
    rig.unfinished = (8,)
    request = Request(wants="an answer")
    for token in (8, 9, 10):
        rig.step(request, token=token)
    begun = [begun for step in rig.sender.steps for begun in step.begun]
    assert [(each.request_id, each.part, each.token_ids) for each in begun] == [("an answer", "a", (8, 9))]
    assert rig.sender.steps[-1].token_ids == [10]
    assert rig.sglang.sent == {"a": [1, 2]}


def test_an_answer_goes_sglangs_way_when_its_tokens_are_no_text(rig):
    rig.unfinished = (8,)
    request = Request()
    for _ in range(40):
        rig.step(request, token=8)
    assert rig.sglang.sent == {"a": list(range(1, 41))}
    rig.unfinished = ()
    rig.step(request, token=9)
    assert rig.sender.steps == []


def test_everything_goes_on_sglangs_way_when_a_step_is_not_taken(rig):
    one, two, plain = Request(rid="a"), Request(rid="b"), Request(rid="c", wants=False)
    rig.step(one, two, plain)
    rig.sender.takes = False
    rig.step(one, two, plain)
    rig.sender.takes = True
    rig.step(one, two, plain)
    assert rig.sglang.sent == {"a": [1, 2, 3], "b": [1, 2, 3], "c": [1, 2, 3]}
    assert len(rig.sender.steps) == 1


def test_everything_goes_on_sglangs_way_when_the_daemon_has_gone(rig):
    request = Request()
    rig.step(request)
    rig.step(request)
    rig.sender.is_ready = False
    rig.streamer.poll()
    rig.step(request)
    rig.sender.is_ready = True
    rig.step(request)
    assert rig.sglang.sent == {"a": [1, 3, 4]}


def test_a_request_is_forgotten_when_it_ended_another_way(rig):
    request = Request()
    rig.step(request)
    request.finished_reason = "abort"
    rig.streamer.poll()
    rig.step(Request(rid="a"))
    assert len(rig.sender.steps) == 2


def test_a_request_is_left_out_when_sglang_leaves_it_out(rig):
    request, other = Request(rid="a"), Request(rid="b")
    rig.step(request, other)
    rig.step(request, other, skip=other)
    assert rig.sender.steps[-1].streams == [1]
    assert rig.sglang.sent == {"a": [1], "b": [1]}


LETTER = ord("<")


@pytest.fixture
def watched():
    """Tokens are letters, and a parser holds back what may begin `<call`."""
    rig = Rig()
    watch = Watch(tokens=frozenset({LETTER}), passes=lambda text: not "<call".startswith(text[:5]))
    text_of = lambda tokens, _: "".join(map(chr, tokens))  # noqa: E731
    rig.streamer = DirectStreamer(rig.sglang, rig.sender, text_of, {CALLS: watch})
    return rig


def spelled(rig, text):
    request = Request()
    request.sampling_params.custom_params[PARSED_KEY] = CALLS
    for letter in text:
        rig.step(request, token=ord(letter))
    return request


def test_a_token_that_may_begin_a_call_goes_sglangs_way_until_it_does_not(watched):
    spelled(watched, "ab<cxyz")
    assert watched.sglang.sent == {"a": [1, 3, 4, 5]}
    assert [step.heard for step in watched.sender.steps if step.heard] == [[(1, [*map(ord, "<cx")])]]
    direct = [token for step in watched.sender.steps for token in step.token_ids]
    assert "".join(map(chr, direct)) == "byz"


def test_everything_goes_sglangs_way_behind_the_begin_of_a_call(watched):
    spelled(watched, "ab<call" + 60 * "x")
    assert watched.sglang.sent["a"][1:] == list(range(3, 68))
    assert not any(step.heard for step in watched.sender.steps)
    assert not watched.streamer._answers


def test_an_answer_that_begins_with_a_call_is_sglangs_alone(watched):
    spelled(watched, "<call" + 20 * "x")
    assert watched.sender.steps == []


def test_the_last_token_goes_sglangs_way_alone_when_a_parser_must_read_it(watched):
    request = spelled(watched, "ab")
    request.finished_reason = FINISH_LENGTH()
    watched.step(request, token=LETTER)
    assert not any(step.last for step in watched.sender.steps)


@pytest.mark.parametrize(
    ("text", "begins", "goes_on"),
    [
        ("<t>", False, False),
        ("<t>a", True, False),
        ("a", True, True),
        ("</t>", False, False),
        ("a</t>", False, False),
        ("a</t>b", False, True),
        ("a</t>#", False, False),
    ],
)
def test_reasoning_is_read_until_it_is_known_what_follows(text, begins, goes_on):
    watch = Watch(
        tokens=frozenset(),
        passes=lambda said: "#" not in said,
        think=("<t>", "</t>"),
        reasons=lambda said: "<" not in said,
    )
    assert (watch.begins(text), watch.goes_on(text)) == (begins, goes_on)


def test_tokens_with_a_letter_are_found_in_the_vocabulary():
    assert tokens_with({"a": 1, "<": 2, "\u0120<b": 3, "<call>": 4, "[": 5}, "<") == {2, 3, 4}


def test_a_token_that_counts_at_the_begin_alone_comes_to_sglang_behind_all_before_it():
    rig = Rig()
    brace = ord("{")
    watch = Watch(
        tokens=frozenset({brace}), alone=frozenset({brace}), passes=lambda text: not text.startswith("{")
    )
    text_of = lambda tokens, _: "".join(map(chr, tokens))  # noqa: E731
    rig.streamer = DirectStreamer(rig.sglang, rig.sender, text_of, {CALLS: watch})
    request = spelled(rig, "abc{xy")
    assert rig.sglang.sent == {"a": [1, 3, 5, 6]}
    assert len(request.output_ids) == 6
    assert not any(step.heard for step in rig.sender.steps)
