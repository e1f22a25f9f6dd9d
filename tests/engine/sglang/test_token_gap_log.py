"""A step's tokens are noted once for all who got one; every request has the gaps that it really had."""

from __future__ import annotations

from itertools import pairwise

from fake_scheduler import FINISH_LENGTH, FakeRequest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.link.durations import counted
from pdmuxd.engine.sglang import token_gap_log
from pdmuxd.engine.sglang.requests import Ledger

NAMES = "abcd"


class Steps:
    """A ledger, and what is expected of it by looking at each request after each step."""

    def __init__(self) -> None:
        self.records = {}
        self.ledger = Ledger(lambda _: 0, lambda record: self.records.update({record.request_id: record}))
        self.requests = {name: FakeRequest.make(name, 3, 99) for name in NAMES}
        self.ledger.watch(list(self.requests.values()), 0.0)
        self.ledger.admitted(NAMES, 0.0)
        self.now_s = 0.0
        self.instants_s = {name: [] for name in NAMES}

    def step(self, present: str, without: str = "", ending: str = "", prefill: bool = False) -> None:
        """One token for all of `present` but `without` and those that have ended before."""
        self.now_s += 0.001 * len(present) + 0.0001
        for name in present:
            request = self.requests[name]
            if name not in without and not request.finished():
                request.output_ids.append(1)
                self.instants_s[name].append(self.now_s)
                if name in ending:
                    request.finished_reason = FINISH_LENGTH()
        give = self.ledger.give_tokens if prefill else self.ledger.give_step
        give(tuple(self.requests[name] for name in present), self.now_s)

    def gaps_s(self, name: str) -> list[float]:
        instants_s = self.instants_s[name]
        return [b - a for a, b in pairwise(instants_s)]


def check(steps: Steps) -> None:
    total = sum(map(len, steps.instants_s.values()))
    assert steps.ledger.output_tokens == total
    steps.step(NAMES, ending=NAMES)
    assert set(steps.records) == set(NAMES)
    for name, record in steps.records.items():
        gaps_s = steps.gaps_s(name)
        assert (record.output_tokens, record.tbt_gaps) == (len(steps.instants_s[name]), len(gaps_s))
        assert record.tbt_max_s == max(gaps_s, default=None)
        assert record.tbt_counts == counted(sorted(gaps_s))
    assert len(steps.ledger) == 0


some = st.sets(st.sampled_from(NAMES)).map(lambda names: "".join(sorted(names)))


@given(st.lists(st.tuples(some, some, some, st.booleans()), max_size=30))
def test_every_request_has_its_gaps_whatever_the_steps_hold(moves):
    steps = Steps()
    for present, without, ending, prefill in moves:
        steps.step(present, without, ending, prefill)
    check(steps)


def test_every_request_has_its_gaps_when_one_that_ended_has_a_row_in_the_next_step():
    steps = Steps()
    for ending in ("", "", "b", "", "", ""):
        steps.step("abcd", ending=ending)
    assert steps.records["b"].output_tokens == 3
    check(steps)


def test_every_request_has_its_gaps_when_the_oldest_were_given_out(monkeypatch):
    monkeypatch.setattr(token_gap_log, "MAX_GAPS", 3)
    steps = Steps()
    for present in ("a", "ab", "abc", *["abcd"] * 10):
        steps.step(present)
    assert len(steps.ledger._gap_log._gaps_s) < 3
    check(steps)


def test_a_target_is_the_strictest_of_those_who_decode_when_they_change():
    steps = Steps()
    for name, target_s in zip(NAMES, (0.4, 0.3, 0.2, 0.1), strict=True):
        steps.ledger.get(name).planned_tbt_s = target_s
    requests = [steps.requests[name] for name in NAMES]
    assert steps.ledger.tbt_target_s([]) is None
    assert steps.ledger.tbt_target_s(requests[:2]) == 0.3
    assert steps.ledger.tbt_target_s(requests) == 0.1
    requests.pop()
    assert steps.ledger.tbt_target_s(requests) == 0.2
