"""What a measured daemon is told to predict with, and what it tells."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from gpu_servers import serving
from gpu_servers.options import SHIPPED
from gpu_servers.serving import Daemon
from pdmuxd.daemon.bench.servers.server import ServerError

LLAMA = SHIPPED / "h200-llama-8b.json.gz"


class Answering(Daemon):
    """A daemon whose engine takes up what is activated, if it fits."""

    def __init__(self, *, fits: bool) -> None:
        super().__init__(data_url="", key="", admin=None)  # type: ignore[arg-type]
        self.told: list[tuple[str, Mapping[str, Any]]] = []
        self.fits = fits
        self.heartbeats = 0

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)  # the real one is frozen

    async def get(self, path: str) -> Any:
        assert path == "/api/v1/profiles/active"
        self.heartbeats += 1
        is_in_force = not self.told or (self.fits and self.heartbeats > 1)
        used = (
            "profile 7 (h200-llama-8b, version 1)"
            if self.told and is_in_force
            else "the engine's own: roofline"
        )
        wrong = None if self.fits else "it is of a NVIDIA H200, the engine runs on a NVIDIA H100"
        return {"in_force": is_in_force, "predicts_with": used, "difference": wrong}

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        self.told.append((path, body))
        return {"profile_id": 7}


async def test_a_given_profile_is_in_force_before_anything_is_measured() -> None:
    daemon = Answering(fits=True)
    assert await daemon.predict_with(LLAMA) == "profile 7 (h200-llama-8b, version 1)"
    (_, document), activation = daemon.told
    assert document["name"] == "h200-llama-8b"
    assert activation == ("/api/v1/profiles/7/activate", {"force": True})


async def test_without_one_it_is_said_what_the_engine_has() -> None:
    assert await Answering(fits=True).predict_with(None) == "the engine's own: roofline"


async def test_a_profile_that_the_engine_does_not_use_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_IN_FORCE_S", 0.0)
    with pytest.raises(ServerError, match="the engine runs on a NVIDIA H100"):
        await Answering(fits=False).predict_with(LLAMA)


async def test_a_file_that_is_no_profile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.json").write_text("{}")
    with pytest.raises(ServerError, match="not a measured profile"):
        await Answering(fits=True).predict_with(tmp_path / "p.json")


METRICS = """# HELP pdmuxd_decisions_total Steps.
# TYPE pdmuxd_decisions_total counter
pdmuxd_decisions_total{mode="fused",reason="best_fit"} 12.0
pdmuxd_decisions_total{mode="split",reason="tbt_infeasible"} 0.0
# HELP pdmuxd_others_total Others.
# TYPE pdmuxd_others_total counter
pdmuxd_others_total{mode="fused",reason="best_fit"} 5.0
"""


async def test_steps_are_those_of_the_metrics() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        body = METRICS.encode()
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, ClientSession(f"http://127.0.0.1:{port}") as admin:
        steps = await Daemon(data_url="", key="", admin=admin).steps()
    assert steps == {"fused best_fit": 12}
