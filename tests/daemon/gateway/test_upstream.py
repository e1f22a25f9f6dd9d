"""The way to the engine, from a loop that is late itself."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiohttp import web

from pdmuxd.daemon.gateway import upstream as module
from pdmuxd.daemon.gateway.upstream import Upstream
from pdmuxd.daemon.supervisor.address import EngineAddress


async def test_a_connection_is_tried_again_when_only_this_loop_was_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_CONNECT_TIMEOUT_S", 0.2)
    app = web.Application()
    asked = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(await request.read())
        return web.Response(text="here")

    app.router.add_post("/generate", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    engine = Upstream(
        EngineAddress(base_url=f"http://{host}:{port}", api_key="k", models=frozenset()),
        on_abort_error=lambda: None,
    )
    opening = asyncio.create_task(engine.open("POST", "/generate", b"once"))
    loop = asyncio.get_running_loop()
    stalls = [loop.call_later(at_s, time.sleep, 0.4) for at_s in (0.0, 0.001)]
    response = await opening
    assert await response.text() == "here"
    assert asked == [b"once"]
    for stall in stalls:
        stall.cancel()
    await engine.close()
    await runner.cleanup()
