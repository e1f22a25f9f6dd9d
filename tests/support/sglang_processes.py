"""SGLang servers on a CPU for tests, stock and pdmuxd's, and a client that notes every token."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import random
import signal
import subprocess
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import process_logs
import psutil
from forked_sglang import ForkedProcess, source_of

from pdmuxd.daemon.process.ports import free_port
from pdmuxd.engine.link.measuring import Measure, Measured, MeasureMode
from pdmuxd.engine.link.messages import (
    Ack,
    EngineSettings,
    EngineStats,
    Hello,
    IterationRecord,
    RequestRecord,
    TenantSlo,
)
from pdmuxd.engine.link.predictors import Predictors
from pdmuxd.engine.link.socket import DaemonEnd
from pdmuxd.engine.sglang.tracked_request import TENANT_KEY

STUB = Path(__file__).parents[1] / "lab" / "in_sglang" / "cpu"
"""What SGLang's CPU path needs of vLLM."""
CPU_FLAGS = (
    *("--device", "cpu", "--dtype", "float32", "--attention-backend", "torch_native"),
    *("--mem-fraction-static", "0.1", "--max-total-tokens", "16384"),
)
STRUCTURED = ("--tool-call-parser", "hermes", "--constrained-json-disable-any-whitespace")
"""With these a model of random weights calls tools, and does not fill JSON with white space up to its limit.
"""
KEY = "test-key"
TENANT = "default"
START_S = 300.0
ANSWER_S = 120.0
"""For an engine's word on the link: on a CPU a launch takes as long as its work, and many share the cores."""


def environment(**own: str) -> dict[str, str]:
    """For a server: no settings of ours, SGLang's own check of the KV pool when it idles, few threads.

    Several processes compute at a time; with a thread for each core in each they would only wait for another.
    """
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PDMUXD_")}
    checks = {"SGLANG_ENABLE_STRICT_MEM_CHECK_DURING_IDLE": "1", "OMP_NUM_THREADS": "1"}
    paths = (own.get("PYTHONPATH"), str(STUB), os.environ.get("PYTHONPATH"))
    return kept | checks | own | {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def daemon_settings(python: Path, model: Path, *flags: str) -> list[str]:
    """For `pdmuxd serve` with SGLang on the CPU; `flags` are SGLang's."""
    return [
        "engine.kind=sglang",
        f"engine.sglang.model={model}",
        f"engine.sglang.python={python}",
        f"engine.sglang.extra_args={' '.join((*CPU_FLAGS, *flags))}",
        "engine.start_timeout_s=300",
    ]


def addresses(pid: int) -> set[str]:
    """Where a process and those that came of it listen."""
    first = psutil.Process(pid)
    members = (first, *first.children(recursive=True))
    return {
        connection.laddr.ip
        for member in members
        for connection in member.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def ranks(tp_size: int) -> dict[str, str]:
    """SGLang wants to know each rank's core where there are more ranks than NUMA nodes.

    A PyTorch made for CUDA brings NCCL along, which SGLang would use on the CPU as well, and fail.
    """
    if tp_size == 1:
        return {}
    cores = os.cpu_count() or 1
    binding = "|".join(str(rank % cores) for rank in range(tp_size))
    return {"SGLANG_CPU_OMP_THREADS_BIND": binding, "SGLANG_NCCL_SO_PATH": "/there/is/none"}


class _Server:
    """A process that is waited for and ended with its children."""

    def __init__(
        self, python: Path, folder: Path, words: Sequence[str], port: int, *, tp_size: int, **own: str
    ) -> None:
        """`words` are a module's name and its arguments."""
        self.base_url = f"http://127.0.0.1:{port}"
        self.log_path = folder / "server.log"
        self.log_path.write_bytes(b"")
        self.process = self._begin(python, tp_size, words, environment(**own))
        process_logs.watch(self.log_path, lambda: self.process.poll() is None)

    def _begin(
        self, python: Path, tp_size: int, words: Sequence[str], env: dict[str, str]
    ) -> subprocess.Popen[bytes] | ForkedProcess:
        if tp_size == 1:
            return ForkedProcess(source_of(python, environment()), words, env, self.log_path)
        with self.log_path.open("wb") as log:
            return subprocess.Popen(
                [str(python), "-P", "-m", *words],
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(errors="replace")

    def __enter__(self):
        try:
            self._until_healthy()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _until_healthy(self):
        end_s = time.monotonic() + START_S
        while time.monotonic() < end_s:
            assert self.process.poll() is None, f"ended with {self.process.returncode}\n{self.log[-5000:]}"
            with contextlib.suppress(httpx.HTTPError):
                if httpx.get(f"{self.base_url}/health", timeout=20).status_code == 200:
                    return
            time.sleep(0.3)
        raise AssertionError(f"not healthy in time\n{self.log[-5000:]}")

    def __exit__(self, *_):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


class StockServer(_Server):
    """SGLang without any plugin of pdmuxd's; `variables` may name a test's own."""

    def __init__(
        self,
        python: Path,
        model: Path,
        folder: Path,
        *,
        tp_size: int = 1,
        flags: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        port = free_port()
        words = ["sglang.launch_server", "--model-path", str(model)]
        words += ["--host", "127.0.0.1", "--port", str(port), "--disable-overlap-schedule", *CPU_FLAGS]
        words += ["--api-key", KEY, "--tp-size", str(tp_size), *flags]
        own = {"SGLANG_PLUGINS": "none"} | ranks(tp_size) | dict(variables or {})
        super().__init__(python, folder, words, port, tp_size=tp_size, **own)


class OurServer(_Server):
    """`python -m pdmuxd.engine.sglang`, as the daemon starts it."""

    def __init__(
        self,
        python: Path,
        model: Path,
        folder: Path,
        *,
        policy: str = "muxwise",
        tp_size: int = 1,
        flags: Sequence[str] = (),
        variables: Mapping[str, str] | None = None,
    ) -> None:
        port = free_port()
        # Not pytest's folder: a socket's path has at most 107 bytes.
        self._sockets = tempfile.TemporaryDirectory(prefix="pdm")
        self.link_address = f"ipc://{self._sockets.name}/engine"
        parent = os.getpid() if tp_size > 1 else source_of(python, environment()).pid
        words = ["pdmuxd.engine.sglang", "--model", str(model)]
        words += ["--host", "127.0.0.1", "--port", str(port), "--link", self.link_address]
        words += ["--policy", policy, "--tp-size", str(tp_size), "--parent-pid", str(parent)]
        words += ["--", *CPU_FLAGS, *flags]
        own = ranks(tp_size) | dict(variables or {})
        super().__init__(python, folder, words, port, tp_size=tp_size, PDMUXD_ENGINE_API_KEY=KEY, **own)

    def __exit__(self, *_):
        super().__exit__()
        self._sockets.cleanup()


class Link:
    """The daemon's end: what the engine reported, and settings with the time to their acknowledgement."""

    def __init__(self, address: str) -> None:
        self._end = DaemonEnd(address)
        self._version = 0
        self._acks: dict[int, asyncio.Future[Ack]] = {}
        self._measured: asyncio.Queue[Measured] = asyncio.Queue()
        self._greeted = asyncio.Event()
        self.hello: Hello | None = None
        self.stats: EngineStats | None = None
        self.records: list[RequestRecord] = []
        self.steps: list[IterationRecord] = []
        self.reasons: Counter[str] = Counter()
        """Of the steps."""

    async def __aenter__(self):
        self._task = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_):
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._end.close()

    async def _read(self) -> None:
        while True:
            message = await self._end.receive()
            match message:
                case Hello():
                    self.hello = message
                    self._version = max(self._version, message.settings_version)
                    self._greeted.set()
                case Ack():
                    # Nobody waits for one that was asked for over an earlier link, or given up.
                    waiting = self._acks.get(message.version)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(message)
                case Measured():
                    self._measured.put_nowait(message)
                case EngineStats():
                    self.stats = message
                case RequestRecord():
                    self.records.append(message)
                case IterationRecord():
                    self.steps.append(message)
                    self.reasons[message.reason] += 1

    async def set(
        self,
        policy: str,
        *,
        tbt_s: float = 0.05,
        others_tbt_s: Mapping[str, float] | None = None,
        ttft_s: Mapping[str, float] | None = None,
        predictors: Predictors | None = None,
        max_wait_s: float | None = None,
    ) -> tuple[Ack, float]:
        """Send settings; the acknowledgement, and the seconds until it came. `ttft_s`: of these tenants,
        whatever the prompt; else a second, and another for each 1,000 tokens. `max_wait_s`: of everybody, or
        the engine's own."""
        await asyncio.wait_for(self._greeted.wait(), ANSWER_S)
        self._version += 1
        slos = tuple(
            TenantSlo(
                tenant=tenant,
                ttft_fixed_s=(ttft_s or {}).get(tenant, 1.0),
                ttft_per_1k_new_tokens_s=0.0 if tenant in (ttft_s or {}) else 1.0,
                tbt_s=target_s,
                attainment_ratio=0.99,
                slo_version=self._version,
                max_wait_ms=None if max_wait_s is None else round(1e3 * max_wait_s),
            )
            for tenant, target_s in {TENANT: tbt_s, **(others_tbt_s or {})}.items()
        )
        settings = EngineSettings(version=self._version, policy=policy, tenants=slos, predictors=predictors)
        acked = self._acks[self._version] = asyncio.get_running_loop().create_future()
        sent_s = time.monotonic()
        await self._end.send(settings)
        ack = await asyncio.wait_for(acked, ANSWER_S)
        return ack, time.monotonic() - sent_s

    async def greeted(self) -> None:
        """Until the engine has introduced itself."""
        await asyncio.wait_for(self._greeted.wait(), ANSWER_S)

    async def measure(self, point: Measure) -> Measured:
        """Ask an idle engine for one point."""
        await self._end.send(point)
        return await asyncio.wait_for(self._measured.get(), ANSWER_S)

    @contextlib.asynccontextmanager
    async def changing(self, policies: Sequence[str], *, every_s: float) -> AsyncIterator[None]:
        """Another policy and another target again and again meanwhile; each must be acknowledged."""
        enough = asyncio.Event()
        changing = asyncio.create_task(self._keep_changing(policies, every_s, enough))
        try:
            yield
        finally:
            enough.set()
            await changing

    async def _keep_changing(self, policies: Sequence[str], every_s: float, enough: asyncio.Event) -> None:
        for number in itertools.count(1):
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(enough.wait(), every_s)
                return
            policy = policies[number % len(policies)]
            ack, _ = await self.set(policy, tbt_s=0.02 + 0.05 * (number % 3))
            assert ack.error is None, ack.error

    async def idle(self) -> EngineStats:
        """Wait until the engine reports that it has nothing to do; what it said before does not count."""
        return await self.told(lambda stats: not (stats.running or stats.waiting or stats.prefilling))

    async def told(self, wanted: Callable[[EngineStats], bool]) -> EngineStats:
        """Wait for statistics as wanted, from now on."""
        self.stats = None
        async with asyncio.timeout(ANSWER_S):
            while (seen := self.stats) is None or not wanted(seen):  # noqa: ASYNC110 - they come by themselves
                await asyncio.sleep(0.1)
        return seen


def point(mode: MeasureMode, **changes: Any) -> Measure:
    """A point to measure, twice."""
    values = {"point_id": 1, "prefill_sms": 0, "decode_sms": 0, "prefill": (), "decode": (), "repeats": 2}
    return Measure(mode=mode, **values | changes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One request of the comparison."""

    at_s: float
    tokens: tuple[int, ...]
    output_tokens: int
    abort_after: int | None
    """Aborted once it has so many tokens; 0: soon after it was sent, whatever it is doing then."""


Answers = list[list[int]]
TEXTS = [f"Tell me about the number {number}. " * (1 + number % 7) for number in range(24)]


@dataclass(frozen=True, slots=True)
class Prompts:
    """Requests that overlap, of all lengths, a third of them with a prefix that others have as well."""

    all: tuple[Prompt, ...]

    @classmethod
    def make(cls, *, seed: int, count: int = 200, per_s: float = 8.0) -> Prompts:
        rng = random.Random(seed)
        shared = [tuple(rng.randrange(3, 512) for _ in range(200)) for _ in range(4)]
        made, at_s = [], 0.0
        for _ in range(count):
            length = rng.choice((3, 10, 40, 120, 120, 300, 900))
            prefix = rng.choice(shared) if rng.random() < 0.33 else ()
            own = tuple(rng.randrange(3, 512) for _ in range(max(1, length - len(prefix))))
            aborted = rng.random() < 0.15
            output_tokens = 64 if aborted else rng.choice((1, 2, 8, 24, 48))
            made.append(
                Prompt(
                    at_s=at_s,
                    tokens=prefix + own,
                    output_tokens=output_tokens,
                    abort_after=rng.choice((0, 0, 1, 5, 20)) if aborted else None,
                )
            )
            at_s += rng.expovariate(per_s)
        return cls(tuple(made))

    def without_aborts(self) -> Prompts:
        return Prompts(tuple(replace(prompt, abort_after=None) for prompt in self.all))

    def first(self, count: int) -> Prompts:
        return Prompts(self.all[:count])


def wrong_answers(
    prompts: Prompts, answers: Answers, expected: Answers
) -> dict[int, tuple[list[int], list[int]]]:
    """By prompt, what was said and what should have been; an aborted answer may end anywhere."""
    return {
        number: (said, should)
        for number, (prompt, said, should) in enumerate(zip(prompts.all, answers, expected, strict=True))
        if said != should[: len(said)] or (prompt.abort_after is None and len(said) != prompt.output_tokens)
    }


def complete(base_url: str, key: str, text: str) -> str:
    """The continuation of a text by OpenAI's endpoint."""
    body = {"model": "tiny", "prompt": text, "max_tokens": 24, "temperature": 0, "ignore_eos": True}
    headers = {"Authorization": f"Bearer {key}"}
    answer = httpx.post(f"{base_url}/v1/completions", json=body, headers=headers, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == body["max_tokens"]
    return str(answer.json()["choices"][0]["text"])


async def ask_all(
    base_url: str, prompts: Prompts, *, speed: float = 1.0, tenants: Sequence[str] = (TENANT,)
) -> Answers:
    """The tokens of each answer, in the order of the prompts, which are of each tenant in turn; shorter where
    it was aborted."""
    # A server closes a connection that idles for 5 s, and one that is used just then fails: none is kept.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    headers = {"Authorization": f"Bearer {KEY}"}
    async with httpx.AsyncClient(base_url=base_url, limits=limits, timeout=300, headers=headers) as client:
        asked = zip(prompts.all, itertools.cycle(tenants), strict=False)
        return list(await asyncio.gather(*(_ask(client, prompt, speed, tenant) for prompt, tenant in asked)))


async def _ask(client: httpx.AsyncClient, prompt: Prompt, speed: float, tenant: str) -> list[int]:
    await asyncio.sleep(prompt.at_s / speed)
    rid = uuid.uuid4().hex
    tokens: list[int] = []
    aborting = None
    if prompt.abort_after == 0:
        aborting = asyncio.create_task(_abort(client, rid, after_s=0.1))
    async for tokens in ask_tokens(client, prompt, rid, tenant, may_fail=prompt.abort_after is not None):
        if prompt.abort_after is not None and aborting is None and len(tokens) >= prompt.abort_after:
            aborting = asyncio.create_task(_abort(client, rid, after_s=0.0))
    if aborting is not None:
        await aborting
    return tokens


async def ask_tokens(
    client: httpx.AsyncClient, prompt: Prompt, rid: str, tenant: str, *, may_fail: bool
) -> AsyncIterator[list[int]]:
    """All tokens of the answer so far, whenever there are more. `may_fail`: it may be aborted."""
    body = {
        "rid": rid,
        "input_ids": list(prompt.tokens),
        "stream": True,
        "sampling_params": {
            "max_new_tokens": prompt.output_tokens,
            "temperature": 0,
            "ignore_eos": True,
            "custom_params": {TENANT_KEY: tenant},
        },
    }
    async with client.stream("POST", "/generate", json=body) as response:
        assert response.status_code == 200, (await response.aread())[:300]
        async for line in _lines(response):
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[len(b"data: ") :])
            assert "error" not in event or may_fail, event
            if "output_ids" in event:
                yield event["output_ids"]


async def _lines(response: httpx.Response) -> AsyncIterator[bytes]:
    """Those of a stream of events; httpx's own also end at what Unicode calls a line's end, within a text."""
    rest = b""
    async for part in response.aiter_bytes():
        *whole, rest = (rest + part).split(b"\n")
        for line in whole:
            yield line


async def _abort(client: httpx.AsyncClient, rid: str, *, after_s: float) -> None:
    await asyncio.sleep(after_s)
    answer = await client.post("/abort_request", json={"rid": rid})
    assert answer.status_code == 200, answer.text
