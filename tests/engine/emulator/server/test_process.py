"""The engine as a real process: its link, its signals, its parent, and its failures."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

import httpx
import pytest

from pdmuxd.engine.emulator.server.__main__ import main
from pdmuxd.engine.link.messages import (
    Ack,
    EngineSettings,
    EngineStats,
    Hello,
    IterationRecord,
    RequestRecord,
    TenantSlo,
)
from pdmuxd.engine.link.socket import DaemonEnd

KEY = "engine-key"
COMMAND = [sys.executable, "-m", "pdmuxd.engine.emulator.server", "--port", "0"]
LONG = {"prompt": "hello", "max_tokens": 100_000, "ignore_eos": True}

MessageT = TypeVar("MessageT")


@contextmanager
def engine(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process and its URL."""
    environment = {**os.environ, "PDMUXD_ENGINE_API_KEY": KEY}
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    with process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert line.startswith("emulated engine listening on http://"), process.communicate()
            yield process, line.split()[-1]
        finally:
            if process.poll() is None:
                process.kill()


@pytest.fixture
def link() -> Iterator[str]:
    # Not tmp_path: a Unix socket's path must stay below 108 bytes.
    with tempfile.TemporaryDirectory(prefix="pdm-") as folder:
        yield f"ipc://{folder}/link"


@asynccontextmanager
async def daemon(link: str) -> AsyncIterator[DaemonEnd]:
    end = DaemonEnd(link)
    try:
        yield end
    finally:
        end.close()


def client(url: str) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"authorization": f"Bearer {KEY}"}, timeout=60)


async def next_message(
    end: DaemonEnd, kind: type[MessageT], wanted: Callable[[MessageT], bool] = lambda _: True
) -> MessageT:
    """The next message of a kind; others are passed over."""
    async with asyncio.timeout(60):
        while True:
            message = await end.receive()
            if isinstance(message, kind) and wanted(message):
                return message


async def test_the_daemon_learns_everything_when_requests_are_served(link: str) -> None:
    async with daemon(link) as end:
        with engine("--link", link, "--served-model", "my-model") as (process, url):
            hello = await next_message(end, Hello)
            assert (hello.pid, hello.engine, hello.model) == (process.pid, "emulator", "my-model")
            assert hello.partitions[0] == (hello.total_sms, 0)
            assert hello.profile_provenance.startswith(("derived", "measured"))

            acme = TenantSlo(
                tenant="acme",
                ttft_fixed_s=1.0,
                ttft_per_1k_new_tokens_s=0.5,
                tbt_s=0.04,
                attainment_ratio=0.99,
                slo_version=11,
            )
            await end.send(EngineSettings(version=8, policy="muxwise", tenants=(acme,)))
            assert await next_message(end, Ack) == Ack(version=8)
            await end.send(EngineSettings(version=9, policy="nonsense", tenants=()))
            refusal = await next_message(end, Ack)
            assert refusal.version == 9
            assert "nonsense" in str(refusal.error)

            async with client(url) as http:
                assert (await http.get("/health")).status_code == 200
                about = (await http.get("/get_server_info")).json()
                assert (about["settings_version"], about["slo_versions"]) == (8, {"acme": 11})
                ask = {"prompt": "hello", "max_tokens": 20, "ignore_eos": True, "rid": "r-1"}
                ask["custom_params"] = {"pdmuxd_tenant": "acme"}
                answer = await http.post("/v1/completions", json=ask)
                assert answer.json()["usage"]["completion_tokens"] == 20
                http.headers["authorization"] = "Bearer wrong"
                assert (await http.post("/v1/completions", json=ask)).status_code == 401

            step = await next_message(end, IterationRecord)
            assert step.step >= 1
            record = await next_message(end, RequestRecord)
            assert (record.request_id, record.tenant, record.outcome) == ("r-1", "acme", "finished")
            assert (record.output_tokens, record.tbt_gaps, record.slo_version) == (20, 19, 11)
            assert record.tbt_target_s == 0.04
            stats = await next_message(end, EngineStats, lambda stats: stats.output_tokens == 20)
            assert (stats.settings_version, stats.dropped_records) == (8, 0)
            assert 0.0 <= stats.sm_busy_decode_ratio <= 1.0
            again = await next_message(end, EngineStats)
            assert again.uptime_s > stats.uptime_s

            process.terminate()
            assert process.wait(60) == 0
            assert process.stderr is not None
            assert process.stderr.read() == ""


async def test_the_engine_introduces_itself_again_when_the_daemon_returns(link: str) -> None:
    with engine("--link", link):
        async with daemon(link) as end:
            first = await next_message(end, Hello)
            await end.send(EngineSettings(version=2, policy="upstream", tenants=()))
            await next_message(end, Ack)
        async with daemon(link) as end:
            second = await next_message(end, Hello)
            assert (second.pid, second.settings_version) == (first.pid, 2)
            assert (await next_message(end, EngineStats)).settings_version == 2


async def test_a_request_is_aborted_when_its_client_goes_away(link: str) -> None:
    async with daemon(link) as end:
        with engine("--link", link) as (_, url):
            await next_message(end, Hello)
            async with client(url) as http:
                for stream in (True, False):
                    ask = {**LONG, "rid": f"r-{stream}", "stream": stream}
                    await gone_in_the_middle(http, ask, end)
                    record = await next_message(end, RequestRecord)
                    assert (record.request_id, record.outcome) == (f"r-{stream}", "aborted")
                    assert 0 < record.output_tokens < 100_000
                assert (await http.get("/get_server_info")).json()["open_requests"] == 0


async def gone_in_the_middle(http: httpx.AsyncClient, ask: dict[str, Any], end: DaemonEnd) -> None:
    before = (await next_message(end, EngineStats)).output_tokens
    asking = asyncio.create_task(http.post("/v1/completions", json=ask))
    await next_message(end, EngineStats, lambda stats: stats.output_tokens > before)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)


@pytest.mark.parametrize("stream", [True, False])
async def test_requests_end_with_a_clear_error_when_the_process_is_terminated(stream: bool) -> None:
    with engine() as (process, url):
        async with client(url) as http:
            async with http.stream("POST", "/v1/completions", json={**LONG, "stream": True}) as first:
                lines = first.aiter_lines()
                await anext(lines)
                second = asyncio.create_task(http.post("/v1/completions", json={**LONG, "stream": stream}))
                async with asyncio.timeout(60):
                    while (await http.get("/server_info")).json()["open_requests"] < 2:
                        pass
                process.send_signal(signal.SIGTERM)
                rest = [line async for line in lines if line]
            assert '"code":"engine_stopping"' in rest[-2]
            assert rest[-1] == "data: [DONE]"
            answer = await second
            assert answer.status_code == (200 if stream else 503)
            assert '"code":"engine_stopping"' in answer.text
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert process.stderr.read() == ""


async def test_only_the_parent_stops_the_process_when_a_terminal_interrupts_both() -> None:
    with engine("--parent-pid", str(os.getpid())) as (process, url):
        process.send_signal(signal.SIGINT)
        async with client(url) as http:
            assert (await http.get("/health")).status_code == 200
        process.terminate()
        assert process.wait(60) == 0
    with engine() as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0


PARENT = """
import os, subprocess, sys
command = [sys.executable, "-m", "pdmuxd.engine.emulator.server", "--port", "0"]
subprocess.Popen([*command, "--parent-pid", str(os.getpid())]).wait()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A process that started an engine and waits for it; both write to its pipes."""
    environment = {**os.environ, "PDMUXD_ENGINE_API_KEY": KEY}
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.kill()


async def test_requests_finish_and_the_process_ends_when_its_parent_dies(
    parent: subprocess.Popen[str],
) -> None:
    assert parent.stdout is not None
    assert parent.stderr is not None
    url = parent.stdout.readline().split()[-1]
    async with client(url) as http:
        ask = {"prompt": "hello", "max_tokens": 150, "ignore_eos": True, "stream": True}
        async with http.stream("POST", "/v1/completions", json=ask) as response:
            lines = response.aiter_lines()
            await anext(lines)
            parent.kill()
            rest = [line async for line in lines if line]
        assert sum('"finish_reason":null' in line for line in rest) == 149
        assert rest[-1] == "data: [DONE]"
    # The engine holds the other end of this pipe: what ends it is the engine's exit.
    errors = await asyncio.wait_for(asyncio.to_thread(parent.stderr.read), 60)
    assert "the parent process died" in errors
    assert "Traceback" not in errors
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])))


def failed(*arguments: str, **environment: str) -> str:
    """The one line on stderr of a process that must refuse to start."""
    command = [sys.executable, "-m", "pdmuxd.engine.emulator.server", *arguments]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=60, env={**os.environ, **environment}
    )
    assert run.returncode == 2
    assert run.stdout == ""
    assert re.fullmatch(r"error: [^\n]+\n", run.stderr)
    return run.stderr


def test_the_process_refuses_to_start_when_its_port_is_in_use() -> None:
    with socket.create_server(("127.0.0.1", 0)) as timing:
        port = str(timing.getsockname()[1])
        assert f"cannot listen on 127.0.0.1 port {port}" in failed("--port", port)


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["--profile", "no-such-gpu"], "unknown profile 'no-such-gpu'; shipped are "),
        (["--policy", "no-such-policy"], "unknown policy 'no-such-policy'; known are"),
        (["--port", "70000"], "'70000' is not a port; allowed are 0 to 65535"),
        (["--link", "/not/an/address"], "it must be ipc:// and a path"),
        (["--parent-pid", "1"], "--parent-pid is 1, but the parent process is"),
        (["--no-such-flag"], "unrecognized arguments"),
    ],
)
def test_the_process_refuses_to_start_when_an_argument_is_wrong(
    arguments: list[str], names: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In this process: that one of its own ends so is tested above."""
    monkeypatch.setattr(sys, "argv", [*COMMAND[2:], *arguments])
    try:
        code: object = main()
    except SystemExit as error:
        code = error.code
    captured = capsys.readouterr()
    assert (code, captured.out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", captured.err)
    assert names in captured.err


def test_the_process_refuses_to_start_when_it_would_listen_without_a_key() -> None:
    assert "PDMUXD_ENGINE_API_KEY is not set" in failed("--host", "0.0.0.0", PDMUXD_ENGINE_API_KEY="")
