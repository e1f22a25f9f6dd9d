"""Device time apart from the host's, on a device and a host with clocks of their own."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from pdmuxd.engine.sglang.gauges import GpuReading
from pdmuxd.engine.sglang.held import TRIES, HeldRuns, Launched

WORK_S = 0.008


@dataclass
class Device:
    """One stream: what is launched runs when it was launched and what is before it is done."""

    launch_s: list[float]
    """Per part of a run; the last one for all further."""
    can_hold: bool = True
    now_s: float = 0.0
    ends_s: float = 0.0
    holds_s: list[float] = field(default_factory=list)
    at_work: list[bool] = field(default_factory=list)
    groups: tuple[()] = ()

    def hold(self, _stream: object, seconds: float, *, is_at_work: bool) -> bool:
        if self.can_hold:
            self.holds_s.append(seconds)
            self.at_work.append(is_at_work)
            self.ends_s = max(self.ends_s, self.now_s) + seconds
        return self.can_hold

    def mark(self, _stream: object = None) -> float:
        return max(self.ends_s, self.now_s)

    def is_done(self, event: float) -> bool:
        return event <= self.now_s

    def wait(self, event: float) -> None:
        self.now_s = max(self.now_s, event)

    def elapsed_s(self, start: float, end: float) -> float:
        return end - start

    def on(self, _stream: object) -> nullcontext[None]:
        return nullcontext()

    def order(self, _later: object, _earlier: object) -> None:
        """One stream."""

    order_after = order

    def launch(self, _batch: object) -> Launched:
        each_s = self.launch_s.pop(0) if len(self.launch_s) > 1 else self.launch_s[0]
        marks = [self.mark()]
        for _ in range(2):
            self.now_s += each_s
            self.ends_s = self.mark() + WORK_S / 2
            marks.append(self.ends_s)
        return Launched(marks[0], marks[1], marks[2])


def held(device: Device, *, repeats: int = 2, in_a_row: bool = False):
    runs: HeldRuns[object] = HeldRuns(
        device, lambda own: [own], lambda: GpuReading(clock_mhz=1500), clock=lambda: device.now_s
    )
    return runs.run(None, object, device.launch, repeats=repeats, in_a_row=in_a_row)


@pytest.mark.parametrize("in_a_row", [False, True])
def test_the_devices_time_is_told_when_launching_takes_longer(in_a_row: bool) -> None:
    device = Device([0.012])
    found = held(device, repeats=3, in_a_row=in_a_row)
    assert found.seconds == pytest.approx([WORK_S] * 3)
    assert found.launch_s == pytest.approx([0.024] * 3)
    assert device.at_work == ([True] if in_a_row else [False] * 3)
    assert not found.is_host_bound
    assert found.reading.clock_mhz == 1500


def test_ranks_rest_while_they_launch_when_there_are_several_gpus() -> None:
    device = Device([0.012])
    runs: HeldRuns[object] = HeldRuns(
        device, lambda own: [own], None, clock=lambda: device.now_s, is_one_gpu=False
    )
    runs.run(None, object, device.launch, repeats=3, in_a_row=True)
    assert device.at_work == [False]


def of_two_ranks(first: Device, others: list[tuple[float, float, bool]], repeats: int = 2):
    """What is told if the second rank has, of each run, these seconds, seconds of launching, and lateness."""
    asked = []

    def gather(own):
        asked.append(own)
        return [own, own if isinstance(own, float) else [type(own[0])(*one) for one in others]]

    runs: HeldRuns[object] = HeldRuns(first, gather, None, clock=lambda: first.now_s, is_one_gpu=False)
    return runs.run(None, object, first.launch, repeats=repeats, in_a_row=False), len(asked)


def test_the_rank_that_came_last_tells_what_a_run_of_several_ranks_takes() -> None:
    found, _ = of_two_ranks(Device([0.012]), [(0.5, 0.001, False), (0.002, 0.06, False)])
    assert found.seconds == pytest.approx([WORK_S, 0.002])
    assert found.launch_s == pytest.approx([0.024, 0.06]), "until the last rank has launched"
    assert not found.is_host_bound


def test_a_run_counts_as_late_when_another_rank_waited_for_its_host() -> None:
    found, _ = of_two_ranks(Device([0.012]), [(0.002, 0.02, True), (0.003, 0.02, False)])
    assert found.seconds == pytest.approx([0.003])
    found, gathered = of_two_ranks(Device([0.012]), [(0.002, 0.02, True), (0.003, 0.02, True)])
    assert found.is_host_bound
    assert gathered == 1 + TRIES, "every rank tries as often"


def test_a_hold_is_made_longer_when_the_host_was_slower_than_before() -> None:
    device = Device([0.002, 0.05])
    found = held(device)
    assert found.seconds == pytest.approx([WORK_S] * 2)
    assert device.holds_s[-1] > device.holds_s[0]


def test_a_run_that_waited_for_the_host_does_not_count_beside_one_that_did_not() -> None:
    found = held(Device([0.01, 0.05, 0.01]))
    assert found.seconds == pytest.approx([WORK_S])
    assert max(found.launch_s) == pytest.approx(0.1), "what launching took counts all the same"


def test_the_host_is_told_of_when_no_hold_is_long_enough() -> None:
    device = Device([0.5])
    found = held(device)
    assert found.is_host_bound
    assert len(device.holds_s) == 2 * TRIES


def test_times_are_told_as_they_are_when_nothing_can_be_held() -> None:
    found = held(Device([0.012], can_hold=False))
    assert found.launch_s == ()
    assert not found.is_host_bound
    assert found.seconds == pytest.approx([0.012 * 2 + WORK_S / 2] * 2)


def test_nothing_is_told_when_it_only_warms_up() -> None:
    assert held(Device([0.012]), repeats=0).seconds == ()
