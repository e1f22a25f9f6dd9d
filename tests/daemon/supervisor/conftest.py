"""A supervisor over fake engine processes, and a listener that remembers."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pdmuxd.daemon.supervisor.events import (
    EngineAccepting,
    EngineServing,
    EngineStateChanged,
    EngineUnresponsive,
)
from pdmuxd.daemon.supervisor.plan import HOST, EnginePlan
from pdmuxd.daemon.supervisor.supervisor import Supervisor
from pdmuxd.engine.link.messages import EngineSettings, RequestRecord

FAKE = Path(__file__).with_name("fake_engine.py")


def settings(version):
    return EngineSettings(version=version, policy="muxwise", tenants=())


@dataclass
class Listener:
    events: asyncio.Queue = field(default_factory=asyncio.Queue)
    states: list = field(default_factory=list)

    def publish(self, event):
        match event:
            case EngineServing(address):
                self.states.append("serving")
                self.events.put_nowait(("serving", address))
            case EngineUnresponsive(is_unresponsive):
                self.events.put_nowait(("unresponsive", is_unresponsive))
            case EngineAccepting():
                self.events.put_nowait(("accepting", None))
            case EngineStateChanged(state, reason):
                self.states.append(state)
                self.events.put_nowait((state, reason))
            case RequestRecord():
                self.events.put_nowait(("request", event))
            case _:
                self.events.put_nowait(("message", event))

    async def next(self, wanted):
        """The value of the next event called `wanted`; others are passed over."""
        async with asyncio.timeout(60):
            while True:
                name, value = await self.events.get()
                if name == wanted:
                    return value


@dataclass
class World:
    supervisor: Supervisor
    listener: Listener
    plan: EnginePlan
    profile: list

    @property
    def log(self):
        return self.plan.log_path.read_text()


@pytest.fixture
def runtime_dir():
    # Not tmp_path: the path of a Unix socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="pdm") as path:
        yield Path(path)


@pytest.fixture
async def make_world(tmp_path, runtime_dir):
    """Build a supervisor; a list holds the profile, so that a test can change it between engines."""
    async with contextlib.AsyncExitStack() as stack:

        async def build(profile="good", *, version=1, start=True, **changes):
            current = [profile]

            def command(port, link, parent_pid):
                options = {"--host": HOST, "--port": port, "--link": link, "--profile": current[0]}
                return [sys.executable, str(FAKE), *(str(word) for pair in options.items() for word in pair)]

            plan = EnginePlan(
                command=command,
                state_dir=tmp_path,
                runtime_dir=runtime_dir,
                **{"start_timeout_s": 60.0, "backoff_initial_s": 0.01, "backoff_max_s": 0.05} | changes,
            )
            listener = Listener()
            supervisor = Supervisor(plan, settings=settings(version), publish=listener.publish)
            stack.push_async_callback(supervisor.stop, at_once=True)
            if start:
                await supervisor.start()
            return World(supervisor, listener, plan, current)

        yield build
