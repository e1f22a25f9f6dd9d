"""An operator's actions: what is answered, and that asking twice changes nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from pdmuxd.controlplane.node.engine_status import NO_ENGINE, EngineState
from pdmuxd.daemon.gateway.admission import Admission
from pdmuxd.daemon.serving.actions import OperatorActions
from pdmuxd.engine.core.errors import ConflictError


@dataclass
class FakeGateway:
    """Idle when its admission is."""

    admission: Admission = field(default_factory=lambda: Admission(8))

    async def idle_within(self, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                await self.admission.wait_idle()
        except TimeoutError:
            return False
        return True


@dataclass
class FakeSupervisor:
    """Remembers what it was told, and is in the state that this leads to."""

    state: EngineState = "serving"
    is_held: bool = False
    is_stopping: bool = False
    restarted: asyncio.Event = field(default_factory=asyncio.Event)

    def status(self):
        return type(NO_ENGINE)(state=self.state, since_s=0.0)

    def hold(self):
        self.is_held, self.state = True, "draining"

    def release(self):
        self.is_held, self.state = False, "serving"

    def restart(self):
        self.is_held, self.state = False, "down"
        self.restarted.set()

    def start_now(self):
        return self.state == "down"


@pytest.fixture
def supervisor():
    return FakeSupervisor()


@pytest.fixture
def gateway():
    return FakeGateway()


@pytest.fixture
async def actions(gateway, supervisor):
    made = OperatorActions(gateway, supervisor, drain_timeout_s=60.0)
    yield made
    await made.close()


async def test_nothing_changes_when_a_drain_or_a_resume_is_asked_for_again(actions):
    assert [actions.drain().changed for _ in range(2)] == [True, False]
    assert [actions.resume().changed for _ in range(2)] == [True, False]


async def test_a_restart_waits_when_requests_are_in_flight(actions, gateway, supervisor):
    gateway.admission.enter("chat", 8)

    done = actions.restart(at_once=False)
    assert (done.changed, done.state, done.text) == (True, "draining", "1 in flight may finish within 60 s")
    assert not actions.restart(at_once=False).changed
    with pytest.raises(ConflictError, match="being restarted"):
        actions.resume()
    assert not supervisor.restarted.is_set()
    gateway.admission.leave("chat")

    async with asyncio.timeout(60):
        await supervisor.restarted.wait()


async def test_a_restart_does_not_wait_longer_than_its_limit_when_requests_never_end(gateway, supervisor):
    gateway.admission.enter("chat", 8)
    actions = OperatorActions(gateway, supervisor, drain_timeout_s=0.01)
    actions.restart(at_once=False)
    async with asyncio.timeout(60):
        await supervisor.restarted.wait()


async def test_a_restart_at_once_overtakes_one_that_waits(actions, gateway, supervisor):
    gateway.admission.enter("chat", 8)
    actions.restart(at_once=False)
    assert actions.restart(at_once=True).changed
    assert supervisor.restarted.is_set()


@pytest.mark.parametrize(
    ("action", "state", "why"),
    [
        ("drain", "down", "only one that serves"),
        ("drain", "starting", "only one that serves"),
        ("resume", "down", "was not drained"),
    ],
)
async def test_an_action_is_refused_when_the_state_does_not_allow_it(actions, supervisor, action, state, why):
    supervisor.state = state
    with pytest.raises(ConflictError, match=why):
        getattr(actions, action)()


async def test_every_action_is_refused_when_the_daemon_stops(actions, supervisor):
    supervisor.is_stopping = True
    calls = (actions.start, actions.drain, actions.resume, lambda: actions.restart(at_once=True))
    for call in calls:
        with pytest.raises(ConflictError, match="the daemon is stopping"):
            call()


async def test_only_an_engine_that_is_down_is_started(actions, supervisor):
    assert not actions.start().changed
    supervisor.state = "down"
    assert actions.start().changed
