"""The virtual-time driver on a scripted engine, and on the real one."""

from __future__ import annotations

import math

import pytest
from engines import Memory, engine, request
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.emulator.replay import drive
from pdmuxd.engine.emulator.requests import EmulatedRequest


class ScriptedEngine:
    """Each request ends `service_s` after its arrival; `calls` records what it was told, in order."""

    def __init__(self, service_s: float = 2.5, *, stuck: bool = False) -> None:
        self.service_s = service_s
        self.stuck = stuck
        self.calls: list[tuple[str, float]] = []
        self.ends: list[float] = []

    def submit(self, request: EmulatedRequest, now_s: float) -> None:
        self.calls.append((request.request_id, now_s))
        self.ends.append(now_s + self.service_s)

    def next_event_s(self) -> float:
        return min(self.ends, default=math.inf)

    def advance(self, until_s: float) -> None:
        self.calls.append(("advance", until_s))
        if not self.stuck:
            self.ends = [end for end in self.ends if end > until_s]


def test_requests_are_submitted_at_their_arrivals_when_driven() -> None:
    scripted = ScriptedEngine()
    samples: list[float] = []
    requests = [request("a", 1, 1, arrival_s=0.4), request("b", 1, 1, arrival_s=1.7)]
    drive(scripted, requests, sample_every_s=1.0, on_sample=samples.append)
    assert [call for call in scripted.calls if call[0] != "advance"] == [("a", 0.4), ("b", 1.7)]
    assert samples == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 5.0]
    assert scripted.next_event_s() == math.inf


def test_nothing_but_the_first_and_last_sample_happens_when_there_are_no_requests() -> None:
    samples: list[float] = []
    drive(ScriptedEngine(), [], sample_every_s=1.0, on_sample=samples.append)
    assert samples == [0.0]


def test_backward_arrivals_are_refused_when_driven() -> None:
    requests = [request("a", 1, 1, arrival_s=2.0), request("b", 1, 1, arrival_s=1.0)]
    with pytest.raises(EngineInvariantError, match="1 s after 2 s"):
        drive(ScriptedEngine(), requests, sample_every_s=1.0, on_sample=lambda now_s: None)


def test_an_engine_whose_time_stands_still_is_an_error_when_driven() -> None:
    with pytest.raises(EngineInvariantError, match="left an event behind"):
        drive(ScriptedEngine(stuck=True), [request("a", 1, 1)], sample_every_s=1.0, on_sample=lambda _: None)


@given(
    st.lists(st.floats(0, 50), min_size=1, max_size=20).map(sorted),
    st.floats(0.1, 20.0),
)
def test_samples_are_at_equal_steps_and_time_never_goes_back_when_arrivals_are_any(
    arrivals: list[float], every_s: float
) -> None:
    scripted = ScriptedEngine()
    samples: list[float] = []
    requests = [request(str(i), 1, 1, arrival_s=at) for i, at in enumerate(arrivals)]
    drive(scripted, requests, sample_every_s=every_s, on_sample=samples.append)
    assert samples[:-1] == [i * every_s for i in range(len(samples) - 1)]
    times = [at for _, at in scripted.calls]
    assert times == sorted(times)
    assert [at for name, at in scripted.calls if name != "advance"] == arrivals


def test_every_request_ends_once_when_the_emulated_engine_is_driven() -> None:
    memory = Memory()
    requests = [request(f"r{i}", 300 * (i % 7 + 1), i % 9 + 1, arrival_s=i * 0.01) for i in range(40)]
    drive(engine("muxwise", observer=memory), requests, sample_every_s=0.5, on_sample=lambda now_s: None)
    assert sorted(name for name, _, _ in memory.ended) == sorted(r.request_id for r in requests)
    assert memory.tokens == {r.request_id: r.output_tokens for r in requests}
