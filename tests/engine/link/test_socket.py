"""The link's ends over a real Unix socket: order, loss that is counted, reconnection, bad peers."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec
import pytest
import zmq

from pdmuxd.engine.core.errors import LinkError
from pdmuxd.engine.link.messages import (
    LINK_PROTOCOL,
    Ack,
    EngineSettings,
    Hello,
    IterationRecord,
    ToDaemon,
    ToEngine,
)
from pdmuxd.engine.link.socket import DaemonEnd, EngineEnd

HELLO = Hello(
    protocol=LINK_PROTOCOL,
    engine="emulator",
    engine_version="0.1.0",
    pid=1,
    model="model",
    device="device",
    total_sms=132,
    partitions=((132, 0), (0, 132)),
    profile="profile",
    profile_provenance="derived",
    settings_version=0,
)


def record(step: int) -> IterationRecord:
    return IterationRecord(
        step=step,
        now_s=0.0,
        mode="split",
        reason="best_fit",
        partition_id=1,
        prefill_sms=100,
        decode_sms=32,
        decode_bs=8,
        decode_reused_tokens=1000,
        prefill_new_tokens=0,
        prefill_layers=0,
        predicted_decode_s=None,
        measured_step_s=0.01,
        guard_ratio=None,
        tbt_slack_s=None,
    )


@pytest.fixture
def address() -> Iterator[str]:
    # Not tmp_path: a Unix socket's path must stay below 108 bytes.
    with tempfile.TemporaryDirectory(prefix="pdm-") as folder:
        yield f"ipc://{folder}/link"


@contextmanager
def engine_end(address: str, *, max_queued: int = 10_000) -> Iterator[EngineEnd]:
    end = EngineEnd(address, max_queued=max_queued)
    try:
        yield end
    finally:
        end.close()


@asynccontextmanager
async def daemon_end(address: str) -> AsyncIterator[DaemonEnd]:
    end = DaemonEnd(address)
    try:
        yield end
    finally:
        end.close()


async def next_of(engine: EngineEnd) -> ToEngine:
    async with asyncio.timeout(60):
        while (message := engine.receive()) is None:
            await engine.wait()
    return message


async def receive(daemon: DaemonEnd, engine: EngineEnd) -> ToDaemon:
    """The daemon's next message, while the engine's end is driven as its loop would."""
    driving = asyncio.create_task(drive(engine))
    try:
        async with asyncio.timeout(60):
            return await daemon.receive()
    finally:
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)


async def drive(engine: EngineEnd) -> None:
    while True:
        await engine.drain(1.0)
        await engine.wait()


async def test_messages_pass_both_ways_when_both_ends_are_up(address: str) -> None:
    async with daemon_end(address) as daemon:
        with engine_end(address) as engine:
            engine.send(HELLO)
            assert await receive(daemon, engine) == HELLO
            await daemon.send(EngineSettings(version=3, policy="muxwise", tenants=()))
            assert await next_of(engine) == EngineSettings(version=3, policy="muxwise", tenants=())
            await daemon.send(EngineSettings(version=1, policy="auto", tenants=()))
            assert await next_of(engine) == EngineSettings(version=1, policy="auto", tenants=())
            assert engine.receive() is None
            assert engine.send(Ack(version=3))
            assert await receive(daemon, engine) == Ack(version=3)


def mode_of(address: str) -> int:
    return Path(address.removeprefix("ipc://")).stat().st_mode & 0o777


async def test_its_owner_alone_may_connect_whatever_the_umask_is(address: str) -> None:
    before = os.umask(0)
    try:
        link = DaemonEnd(address)
    finally:
        os.umask(before)
    assert mode_of(address) == 0o600
    link.close()


async def test_a_waiter_is_woken_when_a_send_consumed_the_signal(address: str) -> None:
    async with daemon_end(address) as daemon:
        with engine_end(address) as engine:
            engine.send(HELLO)
            assert await receive(daemon, engine) == HELLO
            for version in range(1, 51):
                waiting = asyncio.create_task(next_of(engine))
                await asyncio.sleep(0)
                await daemon.send(EngineSettings(version=version, policy="muxwise", tenants=()))
                engine.send(record(version))
                message = await waiting
                assert isinstance(message, EngineSettings)
                assert message.version == version


async def test_the_engine_polls_without_asyncio_when_it_has_no_loop(address: str) -> None:
    async with daemon_end(address) as daemon:

        def engine_process() -> list[ToEngine]:
            with engine_end(address) as engine:
                engine.send(HELLO)
                received: list[ToEngine] = []
                while len(received) < 2:
                    if (message := engine.receive()) is not None:
                        received.append(message)
                return received

        running = asyncio.create_task(asyncio.to_thread(engine_process))
        assert await daemon.receive() == HELLO
        await daemon.send(EngineSettings(version=1, policy="auto", tenants=()))
        await daemon.send(EngineSettings(version=2, policy="auto", tenants=()))
        assert await running == [
            EngineSettings(version=1, policy="auto", tenants=()),
            EngineSettings(version=2, policy="auto", tenants=()),
        ]


async def test_all_loss_is_counted_when_the_queue_is_full(address: str) -> None:
    with engine_end(address, max_queued=100) as engine:
        engine.send(HELLO)
        accepted = [engine.send(record(step)) for step in range(250)]
        assert accepted == [True] * 100 + [False] * 150
        assert (engine.sent, engine.dropped) == (0, 150)
        async with daemon_end(address) as daemon:
            assert await receive(daemon, engine) == HELLO
            steps = [await receive(daemon, engine) for _ in range(100)]
        assert steps == [record(step) for step in range(100)]
        assert engine.sent + engine.dropped == 250 + 1
        assert engine.queued == 0


async def test_posted_telemetry_goes_in_its_order_with_the_next_call(address: str) -> None:
    async with daemon_end(address) as daemon:
        with engine_end(address) as engine:
            engine.send(HELLO)
            assert await receive(daemon, engine) == HELLO
            assert [engine.post(record(step)) for step in range(3)] == [True] * 3
            assert (engine.sent, engine.queued) == (1, 3)
            engine.send(record(3))
            assert [await receive(daemon, engine) for _ in range(4)] == [record(step) for step in range(4)]
            engine.post(record(4))
            assert engine.receive() is None
            assert engine.queued == 0
            assert await daemon.receive() == record(4)


def test_all_loss_is_counted_when_too_much_is_posted(address: str) -> None:
    with engine_end(address, max_queued=2) as engine:
        assert [engine.post(record(step)) for step in range(3)] == [True, True, False]
        assert (engine.dropped, engine.queued) == (1, 2)


async def test_all_loss_is_counted_when_the_daemon_reads_slower_than_the_engine_sends(address: str) -> None:
    async with daemon_end(address) as daemon:
        with engine_end(address, max_queued=50) as engine:
            engine.send(HELLO)
            assert await receive(daemon, engine) == HELLO
            offered = 30_000
            timing = sum(engine.send(record(step)) for step in range(offered))
            assert 0 < engine.dropped == offered - timing
            seen = [await receive(daemon, engine) for _ in range(timing)]
            assert engine.queued == 0
            assert len({message.step for message in seen if isinstance(message, IterationRecord)}) == timing
            assert engine.sent + engine.dropped == offered + 1


async def test_acks_arrive_before_telemetry_when_the_queue_is_full(address: str) -> None:
    with engine_end(address, max_queued=3) as engine:
        engine.send(HELLO)
        for step in range(5):
            engine.send(record(step))
        assert engine.send(Ack(version=1))
        assert engine.send(Ack(version=2, error="unknown policy"))
        async with daemon_end(address) as daemon:
            seen = [await receive(daemon, engine) for _ in range(6)]
    greeting = msgspec.structs.replace(HELLO, settings_version=1)
    assert seen[:3] == [greeting, Ack(version=1), Ack(version=2, error="unknown policy")]
    assert seen[3:] == [record(0), record(1), record(2)]
    assert engine.dropped == 2


async def test_the_engine_introduces_itself_again_when_the_daemon_returns(address: str) -> None:
    with engine_end(address) as engine:
        engine.send(HELLO)
        async with daemon_end(address) as daemon:
            assert await receive(daemon, engine) == HELLO
            engine.send(Ack(version=4))
            assert await receive(daemon, engine) == Ack(version=4)
        async with daemon_end(address) as daemon:
            with pytest.raises(LinkError, match="no engine has introduced itself"):
                await daemon.send(EngineSettings(version=1, policy="auto", tenants=()))
            assert await receive(daemon, engine) == msgspec.structs.replace(HELLO, settings_version=4)
            await daemon.send(EngineSettings(version=1, policy="auto", tenants=()))
            assert await next_of(engine) == EngineSettings(version=1, policy="auto", tenants=())


async def test_settings_go_to_the_new_engine_when_the_old_one_still_talks(address: str) -> None:
    async with daemon_end(address) as daemon:
        with engine_end(address) as old, engine_end(address) as new:
            old.send(HELLO)
            assert await receive(daemon, old) == HELLO
            second = msgspec.structs.replace(HELLO, pid=2)
            new.send(second)
            assert await receive(daemon, new) == second
            old.send(Ack(version=1))
            assert await old.drain(60.0) == 0
            while daemon.ignored == 0:
                new.send(Ack(version=2))
                assert await receive(daemon, new) == Ack(version=2)
            await daemon.send(EngineSettings(version=1, policy="auto", tenants=()))
            assert await next_of(new) == EngineSettings(version=1, policy="auto", tenants=())
            assert old.receive() is None


async def test_sending_is_a_link_error_when_the_engine_died(address: str) -> None:
    async with daemon_end(address) as daemon:
        with engine_end(address) as engine:
            engine.send(HELLO)
            assert await receive(daemon, engine) == HELLO

        async def until_refused() -> None:
            while True:
                await daemon.send(EngineSettings(version=1, policy="auto", tenants=()))
                await asyncio.sleep(0)

        with pytest.raises(LinkError, match="no longer connected"):
            await asyncio.wait_for(until_refused(), 60)


async def test_the_daemon_reads_on_when_a_peer_sends_garbage(address: str) -> None:
    async with daemon_end(address) as daemon:
        with zmq.Context() as context, context.socket(zmq.DEALER) as stranger:
            stranger.linger = 0
            stranger.connect(address)
            stranger.send_multipart([b"what", b"is", b"this"])
            with pytest.raises(LinkError, match="not a message of the engine link"):
                await asyncio.wait_for(daemon.receive(), 60)
        with engine_end(address) as engine:
            engine.send(HELLO)
            assert await receive(daemon, engine) == HELLO


async def test_the_engine_reads_on_when_the_daemon_sends_garbage(address: str) -> None:
    with zmq.Context() as context, context.socket(zmq.DEALER) as stranger, engine_end(address) as engine:
        stranger.linger = 0
        stranger.bind(address)
        stranger.send_multipart([b"pdmuxd-link/99", b"\x80"])
        await asyncio.wait_for(engine.wait(), 60)
        with pytest.raises(LinkError, match="link protocol 99"):
            engine.receive()
        assert engine.receive() is None


async def test_only_one_task_may_wait_when_another_already_does(address: str) -> None:
    with engine_end(address) as engine:
        first = asyncio.create_task(engine.wait())
        await asyncio.sleep(0)
        with pytest.raises(LinkError, match="already waiting"):
            await engine.wait()
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "ipc://", "link"])
def test_an_end_is_refused_when_its_address_is_not_a_path(address: str) -> None:
    for end in (EngineEnd, DaemonEnd):
        with pytest.raises(LinkError, match="it must be ipc:// and a path"):
            end(address)


def test_an_end_is_refused_when_its_path_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(LinkError, match="cannot bind the link"):
        DaemonEnd(f"ipc://{tmp_path}/missing/link")
    for end in (EngineEnd, DaemonEnd):
        with pytest.raises(LinkError):
            end(f"ipc:///tmp/{'x' * 120}")
