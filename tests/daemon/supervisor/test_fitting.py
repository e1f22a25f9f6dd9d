"""Invariant 12: predictors of another engine are not sent."""

import asyncio

import msgspec
import pytest
from profiling import greeting_of, measured_profile

from pdmuxd.daemon.supervisor.sync import ACK_TIMEOUT_S, QUICK_ATTEMPTS, SLOW_ATTEMPT, SettingsSync
from pdmuxd.engine.core.shapes import TensorParallel
from pdmuxd.engine.link.messages import Ack, EngineSettings

SETTINGS = EngineSettings(version=3, policy="auto", tenants=(), predictors=measured_profile().predictors(7))


class Link:
    """Acknowledges what it is sent."""

    def __init__(self, sync):
        self.sent = []
        self._sync = sync

    async def send(self, msg):
        self.sent.append(msg)
        self._sync.on_ack(Ack(version=msg.version))


async def sent_to(hello):
    sync = SettingsSync(SETTINGS)
    link = Link(sync)
    sync.meet(hello)
    running = asyncio.create_task(sync.run(link))
    await sync.wait_settled()
    running.cancel()
    return sync, link.sent


async def test_predictors_are_sent_when_they_are_of_the_engine():
    sync, sent = await sent_to(greeting_of())
    assert sent == [SETTINGS]
    assert sync.profile_difference is None


async def test_predictors_are_kept_back_and_the_difference_told_when_the_engine_is_another():
    sync, sent = await sent_to(greeting_of("h100-qwen3-8b"))
    assert sent == [msgspec.structs.replace(SETTINGS, predictors=None)]
    assert "the engine runs on a NVIDIA H100" in sync.profile_difference
    assert sync.in_force


async def test_predictors_are_kept_back_when_the_engine_came_back_on_another_number_of_gpus():
    several = msgspec.structs.replace(greeting_of(), tensor_parallel=TensorParallel(gpus=2))
    sync, sent = await sent_to(several)
    assert sent == [msgspec.structs.replace(SETTINGS, predictors=None)]
    assert sync.profile_difference == "it is of a model on 1 GPU, the engine spreads its model over 2"
    of_several = msgspec.structs.replace(SETTINGS.predictors, gpus=2)
    sync = SettingsSync(msgspec.structs.replace(SETTINGS, predictors=of_several))
    sync.meet(several)
    assert sync.profile_difference is None
    sync.meet(greeting_of())
    assert sync.profile_difference == "it is of a model on 2 GPUs, the engine spreads its model over 1"


async def test_an_engine_that_reads_nothing_is_sent_less_often_when_it_has_had_its_chance(monkeypatch):
    waits_s = []
    real = asyncio.timeout

    def at_once(wait_s):
        waits_s.append(wait_s)
        return real(0.0)

    class EnoughError(Exception):
        """Ends the test."""

    class Deaf:
        async def send(self, msg):
            if len(waits_s) == QUICK_ATTEMPTS + 2:
                raise EnoughError

    monkeypatch.setattr(asyncio, "timeout", at_once)
    with pytest.raises(EnoughError):
        await SettingsSync(SETTINGS).run(Deaf())
    assert waits_s[:QUICK_ATTEMPTS] == [ACK_TIMEOUT_S] * QUICK_ATTEMPTS
    assert waits_s[QUICK_ATTEMPTS:] == [SLOW_ATTEMPT * ACK_TIMEOUT_S] * 2
