"""What a measurement of decode beside prefill launches, on one rank and on two."""

from collections import deque

from engine_rig import RULES
from fake_device import FakeClock, FakeStreams
from fake_scheduler import FakePort

from pdmuxd.engine.core.partitions import even_steps
from pdmuxd.engine.sglang.colocated import ColocatedMeasurement, shortest


class Wired(FakePort):
    """Of 16 layers."""

    layers = 16


class Measuring:
    """One rank. Each look finds a layer done, and each `late`-th a decode step.

    A host that takes `host_s` to launch a step finds both streams idle by then.
    """

    def __init__(self, *, first=True, wire=None, late=3, host_s=0.0):
        self.clock = FakeClock()
        self.device = FakeStreams(even_steps(RULES), self.clock)
        self.group = self.device.groups[1]
        self.log = []
        self.late = late
        self.host_s = host_s
        self.colocated_step = ColocatedMeasurement(
            Wired(self.device, first=first, wire=wire),
            self.device,
            step=self._launch_step,
            layer=lambda batch: self._launch(batch, self.group.prefill),
            sleep=self._look_again,
        )

    def _launch_step(self):
        if self.host_s:
            for stream in (self.group.prefill, self.group.decode):
                if stream.pending:
                    self.device.finish(stream.pending[-1])
            self.clock.now_s += self.host_s
        return self._launch("step", self.group.decode)

    def _launch(self, what, stream):
        """It begins at once where the stream is idle."""
        self.log.append(what)
        self.clock.now_s += 1e-6
        idle = not stream.pending
        start, end = self.device.mark(stream), self.device.mark(stream)
        if idle:
            self.device.finish(start)
        return start, end

    def _look_again(self, seconds):
        self.clock.sleep(seconds)
        for event in list(self.group.prefill.pending[:2]):
            self.device.finish(event)
        if self.clock.slept % self.late == 0:
            for event in list(self.group.decode.pending[:2]):
                self.device.finish(event)


def test_steps_and_layers_are_launched_by_turns_while_there_is_room():
    one = Measuring()
    one.colocated_step.run("a")
    assert one.log[:8] == ["step", "a", "step", *"aaaaa"]
    assert one.log.count("a") == 16


def test_the_prefill_is_done_when_its_run_ends():
    one = Measuring()
    for batch in "ab":
        begin, end = one.colocated_step.run(batch)
        assert end.done_s > begin.done_s
    assert one.log.count("b") == 16
    assert not one.group.prefill.pending


def test_steps_count_when_they_lie_between_the_first_layer_and_the_last():
    one = Measuring(late=1)
    begin, end = one.colocated_step.run("a")
    within = one.colocated_step.steps_within(begin, end)
    assert len(within) == one.log.count("step")
    assert None in within
    inside_s = [seconds for seconds in within if seconds is not None]
    assert inside_s
    assert 0.0 < sum(inside_s) <= end.done_s - begin.done_s


def test_what_passes_until_a_late_launch_is_not_counted():
    one = Measuring(late=1, host_s=1.0)
    begin, end = one.colocated_step.run("a")
    within = [s for s in one.colocated_step.steps_within(begin, end) if s is not None]
    assert end.done_s - begin.done_s > 1.0
    assert within
    assert max(within) < 0.01


def test_the_rank_that_launched_last_tells_what_a_step_takes():
    first, second = (0.030, 0.012, None, 0.010), (0.010, None, 0.011, 0.025)
    assert shortest([first, second]) == (0.010, 0.012, 0.010)
    assert shortest([first]) == (0.030, 0.012, 0.010)


def test_the_other_rank_launches_the_same_without_a_look_at_its_own_device():
    wire = deque()
    first, second = Measuring(wire=wire), Measuring(first=False, wire=wire)
    for rank in (first, second):
        for batch in "ab":
            rank.colocated_step.run(batch)
    assert second.log == first.log
    assert not wire
    assert second.clock.slept == 0
    assert len(second.device.blocked) == 2, "its own device is waited for at each prefill's end"


def test_ranks_agree_less_often_than_there_are_layers():
    wire = deque()
    Measuring(wire=wire).colocated_step.run("a")
    launched = [following.layers for following in wire if following.layers]
    assert sum(launched) == 16
    assert launched[0] == 6
    assert len(launched) < 16
