"""`pdmuxd serve` as a process, its admin plane, and what it tells as it happens."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import msgspec
from prometheus_client.parser import text_string_to_metric_families

from gpu_servers.options import ServerOptions
from gpu_servers.shapes import shape_model
from pdmuxd.daemon.bench.arms import CPU_FLAGS, GPU_FLAGS
from pdmuxd.daemon.bench.servers.server import ServerError, die_with_parent, last_words
from pdmuxd.daemon.supervisor.choice import KERNELS_FILE
from pdmuxd.engine.core.errors import ProfileError
from pdmuxd.engine.profiling.document import read_file, to_json

Found = TypeVar("Found")
_STOP_S = 40.0
_IN_FORCE_S = 10.0
"""What a profile may take to reach the engine and a heartbeat to tell of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Daemon:
    """A daemon that serves."""

    data_url: str
    key: str
    admin: aiohttp.ClientSession

    async def get(self, path: str) -> Any:
        """The JSON at a path of the admin plane."""
        async with self.admin.get(path) as response:
            return await response.json()

    async def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """Write it. Raises: ServerError with what the daemon answered."""
        async with self.admin.put(path, json=body) as response:
            if response.status != 200:
                raise ServerError(f"PUT {path}: {response.status} {(await response.text())[:200]}")
            return await response.json()

    async def post(self, path: str, body: Mapping[str, Any]) -> Any:
        """Make it, or have it done. Raises: ServerError with what the daemon answered."""
        async with self.admin.post(path, json=body) as response:
            if response.status not in (200, 201):
                raise ServerError(f"POST {path}: {response.status} {(await response.text())[:200]}")
            return await response.json()

    async def steps(self) -> Counter[str]:
        """How many steps were decided since the daemon's start, by mode and reason."""
        async with self.admin.get("/metrics") as response:
            families = text_string_to_metric_families(await response.text())
            return Counter(
                {
                    f"{sample.labels['mode']} {sample.labels['reason']}": int(sample.value)
                    for family in families
                    if family.name == "pdmuxd_decisions"
                    for sample in family.samples
                    if sample.name == "pdmuxd_decisions_total" and sample.value
                }
            )

    async def predict_with(self, profile: Path | None) -> str:
        """Put a profile in force, if one is given; what the policies predict with then.

        Raises: ServerError if the profile cannot be read, or the engine does not use it.
        """
        if profile is not None:
            try:
                document = msgspec.json.decode(to_json(read_file(profile)))
            except ProfileError as error:
                raise ServerError(str(error)) from error
            stored = await self.post("/api/v1/profiles", document)
            await self.post(f"/api/v1/profiles/{stored['profile_id']}/activate", {"force": True})
        end_s = time.monotonic() + _IN_FORCE_S
        active = await self.get("/api/v1/profiles/active")
        while not active["in_force"] and time.monotonic() < end_s:
            await asyncio.sleep(0.2)
            active = await self.get("/api/v1/profiles/active")
        if not active["in_force"]:
            why = active["difference"] or f"it predicts with {active['predicts_with']}"
            raise ServerError(f"the engine does not predict with {profile or 'the active profile'}: {why}")
        return str(active["predicts_with"])

    async def events(self, *types: str) -> AsyncIterator[tuple[float, str, dict[str, Any]]]:
        """What happens from now on: when it was told (monotonic seconds), its type, its data."""
        timeout = aiohttp.ClientTimeout(total=None, sock_read=None)
        params = {"types": ",".join(types)}
        async with self.admin.get("/api/v1/events", params=params, timeout=timeout) as response:
            kind = ""
            async for line in response.content:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind in types:
                    yield time.monotonic(), kind, json.loads(value)


def settings_of(options: ServerOptions, engine: str, model: str, policy: str) -> list[str]:
    """The daemon's settings for an engine of a kind (`sglang`, `emulator`) with a shape and a policy."""
    if engine == "emulator":
        return ["engine.kind=emulator", f"engine.policy={policy}"]
    served = shape_model(model, options.work, options.config)
    flags = [*served.flags, *(CPU_FLAGS if options.cpu else GPU_FLAGS), *options.extra]
    return [
        "engine.kind=sglang",
        f"engine.policy={policy}",
        f"engine.sglang.model={served.folder.absolute()}",
        f"engine.sglang.python={Path(options.python or sys.executable).absolute()}",
        f"engine.sglang.extra_args={' '.join(flags)}",
        f"engine.start_timeout_s={options.start_s:g}",
    ]


@contextlib.asynccontextmanager
async def serving(
    settings: Sequence[str],
    *,
    environment: Mapping[str, str],
    folder: Path,
    start_s: float,
    kernels_file: Path | None = None,
) -> AsyncIterator[Daemon]:
    """Start a daemon in an empty folder; ends it and its engine. Which kernels are fastest it reads from
    `kernels_file`, and leaves there. Raises: ServerError."""
    given = ["state_dir=state", "data.port=0", "admin.port=0", *settings]
    flags = [word for setting in given for word in ("--set", setting)]
    command = [sys.executable, "-P", "-m", "pdmuxd.daemon.cli.main", *flags, "serve", "--first-run"]
    log = folder / "daemon.log"
    own_kernels = folder / "state" / KERNELS_FILE
    _copy(kernels_file, own_kernels)
    with log.open("ab") as file:
        process = await asyncio.create_subprocess_exec(
            *command, cwd=folder, env=environment, stdout=PIPE, stderr=file, preexec_fn=die_with_parent
        )
    try:
        said = await _said_until_ready(process, log, start_s)
        token = (folder / "state" / "admin-token").read_text().strip()
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession(_found(r"admin plane +(\S+)", said), headers=headers) as admin:
            yield Daemon(
                data_url=_found(r"data plane +(\S+)", said),
                key=_found(r"^ +(pdm_\S+)$", said),
                admin=admin,
            )
    finally:
        await _stop(process)
        _copy(own_kernels, kernels_file)


def _copy(source: Path | None, target: Path | None) -> None:
    """If there is one, and it is wanted."""
    if source is not None and target is not None and source.is_file():
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(source, target)


async def _said_until_ready(process: Process, log: Path, start_s: float) -> str:
    """What it prints; the curl line is the last."""
    lines: list[str] = []
    if process.stdout is None:
        raise RuntimeError("a process without its pipe")
    try:
        async with asyncio.timeout(start_s):
            async for line in process.stdout:
                lines.append(line.decode())
                if lines[-1].lstrip().startswith("curl "):
                    return "".join(lines)
    except TimeoutError:
        lines.append(f"not ready within {start_s:g} s")
    raise ServerError(" | ".join([*lines[-2:], last_words(log)]))


def _found(pattern: str, text: str) -> str:
    match = re.search(pattern, text, re.MULTILINE)
    if match is None:
        raise ServerError(f"the daemon did not print {pattern!r}")
    return match[1]


async def _stop(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP_S)
            return
        process.kill()
    await process.wait()


async def with_logs(
    measure: Callable[[Path], Coroutine[Any, Any, Found]], log_dir: Path, name: str, folder: Path
) -> Found:
    """Measure with a daemon in `folder`, and keep its logs and its engine's whatever comes of it."""
    try:
        return await measure(folder)
    finally:
        for path in (folder / "daemon.log", folder / "state" / "engine.log"):
            if path.is_file():
                (log_dir / f"{name}-{path.name}").write_bytes(path.read_bytes())
