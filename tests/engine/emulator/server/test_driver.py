"""The wall-clock driver: lag is counted and never made up for, settings and records follow the engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import numpy as np
import pytest

from pdmuxd.engine.core.errors import EngineInvariantError
from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.front import Delivery
from pdmuxd.engine.emulator.noise import NO_NOISE
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, Profile, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest, Phase
from pdmuxd.engine.emulator.server.bodies import Call, Sampling
from pdmuxd.engine.emulator.server.delivery import Deliveries, Inbox, Output
from pdmuxd.engine.emulator.server.driver import WallClockDriver
from pdmuxd.engine.emulator.server.planning import plan
from pdmuxd.engine.emulator.server.telemetry import request_record
from pdmuxd.engine.link.durations import counted
from pdmuxd.engine.link.messages import Ack, EngineSettings, RequestRecord, TenantSlo


class Clock:
    """Time that passes only when told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Machine:
    """A driver on a clock of its own; records of ended requests."""

    def __init__(self, profile: Profile | None = None) -> None:
        self.clock = Clock()
        deliveries = Deliveries()
        profile = profile or load_profile(DEFAULT_PROFILE)
        self.engine = EmulatedEngine(profile=profile, policy="muxwise", observer=deliveries)
        self.driver = WallClockDriver(self.engine, deliveries, clock=self.clock)
        self.records: list[RequestRecord] = []
        self.driver.on_end(lambda request: self.records.append(request_record(self.engine, request)))

    def submit(self, name: str, tokens: int, *, tenant: str = "acme", prompt: str = "hello") -> Output:
        sampling = Sampling(
            max_tokens=tokens, min_tokens=0, ignore_eos=True, stops=(), keep_stop=False, seed=0
        )
        call = Call(
            rid=name,
            tenant=tenant,
            prompts=(prompt,),
            prompt_param="prompt",
            sampling=sampling,
            salt="",
            stream=True,
        )
        planned = plan(call, prompt, block_tokens=16, max_context_tokens=100_000)
        inbox = Inbox(every_token=True)
        return self.driver.submit([name], [planned], tenant=tenant, inbox=inbox)[0]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        task = asyncio.create_task(self.driver.run())
        await asyncio.sleep(0)
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def pass_time(self, seconds: float) -> None:
        """Jump, and let the driver's task notice at its next turn."""
        self.clock.now_s += seconds
        async with asyncio.timeout(60):
            while self.engine.now_s < self.driver.now_s():  # noqa: ASYNC110 - nothing tells of a turn
                await asyncio.sleep(0.001)


async def test_lag_is_counted_and_not_made_up_for_when_the_machine_stalls() -> None:
    machine = Machine()
    async with machine.running():
        output = machine.submit("a", 50)
        await machine.pass_time(10.0)
        assert output.ended
        assert machine.driver.late_wakeups >= 1
        assert machine.driver.lag_s == pytest.approx(10.0, abs=0.3)
        assert machine.engine.now_s == pytest.approx(10.0)
        # The engine's own times know nothing of the stall.
        assert machine.records[0].ttft_s is not None
        assert machine.records[0].ttft_s < 0.5


async def test_nothing_is_counted_as_lag_when_the_driver_is_on_time() -> None:
    machine = Machine()
    async with machine.running():
        output = machine.submit("a", 5)
        while not output.ended:
            await machine.pass_time(0.001)
    assert (machine.driver.late_wakeups, machine.driver.lag_s) == (0, 0.0)


async def test_the_driver_is_alive_only_when_its_task_turns() -> None:
    machine = Machine()
    assert not machine.driver.alive
    async with machine.running():
        assert machine.driver.alive
        await machine.pass_time(60.0)
        assert machine.driver.alive
    machine.clock.now_s += 60.0
    assert not machine.driver.alive


async def test_a_record_tells_the_gaps_when_a_request_has_several_tokens() -> None:
    machine = Machine()
    async with machine.running():
        output = machine.submit("a", 40)
        await machine.pass_time(10.0)
    (record,) = machine.records
    gaps = np.diff(machine.engine.token_times(output.request))
    assert record.request_id == "a"
    assert record.outcome == "finished"
    assert (record.output_tokens, record.tbt_gaps) == (40, 39)
    assert record.tbt_max_s == pytest.approx(gaps.max())
    assert record.tbt_p99_s == pytest.approx(np.percentile(gaps, 99, method="inverted_cdf"))
    assert record.tbt_gaps_met == np.count_nonzero(gaps <= record.tbt_target_s)
    assert record.tbt_counts == counted(sorted(gaps))
    assert sum(count for _, count in record.tbt_counts) == 39
    assert record.queue_s is not None
    assert record.ttft_s is not None
    assert 0 <= record.queue_s < record.ttft_s


async def test_a_record_has_no_gaps_when_a_request_has_one_token() -> None:
    machine = Machine()
    async with machine.running():
        machine.submit("a", 1)
        await machine.pass_time(10.0)
    (record,) = machine.records
    assert (record.tbt_max_s, record.tbt_p99_s, record.tbt_gaps, record.tbt_gaps_met) == (None, None, 0, 0)


async def test_a_record_has_no_times_when_a_request_never_started() -> None:
    request = EmulatedRequest(request_id="a", tenant="t", arrival_s=1.0, input_tokens=10, output_tokens=5)
    request.phase = Phase.ABORTED
    record = request_record(Machine().engine, request)
    assert record.outcome == "aborted"
    assert (record.queue_s, record.ttft_s, record.output_tokens, record.tbt_gaps) == (None, None, 0, 0)


def settings(version: int, *, tbt_s: float = 0.02, policy: str = "muxwise", slo: int = 7) -> EngineSettings:
    acme = TenantSlo(
        tenant="acme",
        ttft_fixed_s=0.5,
        ttft_per_1k_new_tokens_s=0.1,
        tbt_s=tbt_s,
        attainment_ratio=0.99,
        slo_version=slo,
    )
    return EngineSettings(version=version, policy=policy, tenants=(acme,))


async def test_targets_hold_for_running_and_later_requests_when_settings_are_applied() -> None:
    machine = Machine()
    async with machine.running():
        running = machine.submit("running", 10_000)
        await machine.pass_time(1.0)
        waiting = machine.submit("waiting", 10_000)
        assert machine.driver.apply(settings(3)) == Ack(version=3)
        later = machine.submit("later", 10_000)
        other = machine.submit("other", 10_000, tenant="someone else")
        for output in (running, waiting, later):
            assert (output.request.tbt_target_s, output.request.slo_version) == (0.02, 7)
        assert other.request.slo_version == 0
        assert machine.driver.slo_versions == {"acme": 7}
        assert machine.engine.counters().settings_version == 3
        machine.driver.abort_all()
        await machine.pass_time(1.0)
    assert [record.slo_version for record in machine.records] == [7, 7, 7, 0]


async def test_the_policy_changes_when_settings_name_another() -> None:
    machine = Machine()
    async with machine.running():
        assert machine.driver.apply(settings(1, policy="chunked:512")) == Ack(version=1)
        machine.submit("a", 10)
        await machine.pass_time(5.0)
    assert machine.engine.counters().policy == "chunked:512"
    assert machine.records[0].output_tokens == 10


@pytest.mark.parametrize(
    ("refused", "why"),
    [
        (settings(5, policy="no-such-policy"), "unknown policy 'no-such-policy'"),
        (settings(5, policy="static:1000,1000"), "1000"),
        (settings(5, tbt_s=-1.0), "tenant acme: tbt_s is -1"),
        (settings(3), "settings version 4 is already in force"),
    ],
)
async def test_nothing_changes_when_settings_are_refused(refused: EngineSettings, why: str) -> None:
    machine = Machine()
    assert machine.driver.apply(settings(4)) == Ack(version=4)
    ack = machine.driver.apply(refused)
    assert ack.version == refused.version
    assert why in str(ack.error)
    assert machine.driver.settings_version == 4
    assert machine.engine.counters().settings_version == 4
    assert machine.submit("a", 10).request.tbt_target_s == 0.02


async def test_the_same_settings_are_acknowledged_again_when_sent_again() -> None:
    machine = Machine()
    assert machine.driver.apply(settings(4)) == Ack(version=4)
    assert machine.driver.apply(settings(4)) == Ack(version=4)


async def test_every_request_ends_once_when_some_finish_and_some_are_aborted() -> None:
    machine = Machine()
    async with machine.running():
        outputs = [machine.submit(str(i), 10 + 40 * (i % 2)) for i in range(20)]
        while not outputs[0].ended:
            await machine.pass_time(0.02)
        machine.driver.abort_all()
        await machine.pass_time(5.0)
    assert sorted(record.request_id for record in machine.records) == sorted(str(i) for i in range(20))
    assert all(output.request.phase in (Phase.FINISHED, Phase.ABORTED) for output in outputs)
    assert {record.outcome for record in machine.records} == {"finished", "aborted"}
    machine.engine.check_integrity()


async def test_drain_waits_until_nothing_is_open_when_there_is_time() -> None:
    machine = Machine()
    async with machine.running():
        output = machine.submit("a", 10)
        draining = asyncio.create_task(machine.driver.drain(30.0))
        await asyncio.sleep(0)
        assert not draining.done()
        await machine.pass_time(5.0)
        await asyncio.wait_for(draining, 60)
        assert output.ended
        await machine.driver.drain(30.0)


async def test_drain_gives_up_when_time_is_over() -> None:
    machine = Machine()
    output = machine.submit("a", 10)
    await machine.driver.drain(0.0)
    assert not output.ended
    machine.driver.abort_all()


async def test_the_driver_stops_and_calls_no_more_when_the_engine_breaks_an_invariant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine()
    turning = asyncio.create_task(machine.driver.run())
    output = machine.submit("a", 10)

    def broken(request: EmulatedRequest, now_s: float) -> None:
        raise EngineInvariantError("tokens are held although no request is left")

    monkeypatch.setattr(machine.engine, "submit", broken)
    with pytest.raises(EngineInvariantError):
        machine.submit("b", 10)
    with pytest.raises(EngineInvariantError, match="tokens are held"):
        await asyncio.wait_for(turning, 60)
    machine.driver.abort([output])
    assert not output.ended


def test_an_observer_counts_every_token_once_when_the_engine_calls_it() -> None:
    deliveries = Deliveries()
    request = EmulatedRequest(request_id="a", tenant="t", arrival_s=0.0, input_tokens=10, output_tokens=30)
    engine = EmulatedEngine(profile=load_profile(DEFAULT_PROFILE), policy="muxwise", observer=deliveries)
    sampling = Sampling(max_tokens=30, min_tokens=0, ignore_eos=True, stops=(), keep_stop=False, seed=0)
    call = Call(
        rid="a", tenant="t", prompts=(), prompt_param="prompt", sampling=sampling, salt="", stream=True
    )
    planned = plan(call, [1] * 10, block_tokens=16, max_context_tokens=100)
    output = deliveries.open["a"] = Output(request, planned, Inbox(every_token=True))
    engine.submit(request, 0.0)
    engine.advance(100.0)
    assert output.produced == 30
    assert output.ended
    assert deliveries.take_ended() == [request]
    assert deliveries.take_ended() == []


async def test_tokens_come_when_the_process_behind_the_scheduler_hands_them_out() -> None:
    served = replace(load_profile("h100-llama-8b-served"), delivery=Delivery(token_s=0.1), noise=NO_NOISE)
    machine = Machine(served)
    async with machine.running():
        output = machine.submit("a", 40)
        await machine.pass_time(2.05)
        assert output.request.phase is Phase.FINISHED, "for the scheduler"
        assert not output.ended
        assert 15 <= output.produced <= 20
        await machine.pass_time(3.0)
        assert output.ended
    (record,) = machine.records
    assert (output.produced, record.output_tokens) == (40, 40)
    assert record.tbt_max_s is not None
    assert record.tbt_max_s < 0.05, "a record is of steps"
