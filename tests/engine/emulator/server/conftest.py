"""An emulated engine behind its HTTP application, in this process and faster than the wall clock."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest

from pdmuxd.engine.emulator.engine import EmulatedEngine
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE, Profile, load_profile
from pdmuxd.engine.emulator.requests import EmulatedRequest
from pdmuxd.engine.emulator.server.app import build_app
from pdmuxd.engine.emulator.server.delivery import Deliveries
from pdmuxd.engine.emulator.server.driver import WallClockDriver

KEY = "engine-key"
SPEED = 200.0
"""Emulated seconds per second; a turn of the loop then covers many steps, which must not matter."""


class Clock:
    """The wall's, times a speed that may change."""

    def __init__(self, speed: float) -> None:
        self._speed = speed
        self._from_s = self._since_s = time.monotonic()

    def __call__(self) -> float:
        return self._from_s + (time.monotonic() - self._since_s) * self._speed

    def hurry(self) -> None:
        """From now on at SPEED."""
        self._from_s, self._since_s, self._speed = self(), time.monotonic(), SPEED


@dataclass
class Server:
    """The application's client, and what stands behind it."""

    client: httpx.AsyncClient
    driver: WallClockDriver
    clock: Clock
    ended: list[EmulatedRequest] = field(default_factory=list)

    async def post(self, path: str, **body: Any) -> httpx.Response:
        return await self.client.post(path, json=body)

    async def events(self, path: str, **body: Any) -> list[Any]:
        """The events of a stream that must end properly, without the final marker."""
        response = await self.post(path, stream=True, **body)
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        return parse_events(response.text)


def parse_events(text: str) -> list[Any]:
    *events, last, rest = text.split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    assert all(event.startswith("data: ") for event in events)
    return [json.loads(event.removeprefix("data: ")) for event in events]


async def _serve(*, speed: float = 1.0, profile: Profile | None = None) -> AsyncIterator[Server]:
    clock = Clock(speed)
    deliveries = Deliveries()
    profile = profile or load_profile(DEFAULT_PROFILE)
    engine = EmulatedEngine(profile=profile, policy="muxwise", observer=deliveries)
    driver = WallClockDriver(engine, deliveries, clock=clock)
    app = build_app(driver, model="llama-8b", version="1.2.3", key=KEY)
    running = asyncio.create_task(driver.run())
    headers = {"authorization": f"Bearer {KEY}"}
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://engine", headers=headers) as client:
        server = Server(client, driver, clock)
        driver.on_end(server.ended.append)
        await asyncio.sleep(0)
        yield server
        assert driver.open_requests == 0
        assert not running.done(), "the driver's task has ended"
    engine.check_integrity()
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    async for each in _serve(speed=SPEED):
        yield each


@pytest.fixture
async def slow_server() -> AsyncIterator[Server]:
    """At the wall clock's own pace, for what happens while a request runs; see `hurry`."""
    async for each in _serve():
        yield each


@pytest.fixture
async def small_server() -> AsyncIterator[Server]:
    """With room for 2,000 tokens."""
    async for each in _serve(profile=replace(load_profile(DEFAULT_PROFILE), kv_capacity_tokens=2000)):
        yield each
