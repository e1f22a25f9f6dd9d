"""What a measurement fails without, looked for before anything is started."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from pdmuxd.daemon.bench.servers.nvidia import FREE_BYTES, used_bytes
from pdmuxd.daemon.bench.servers.predicting import predictors
from pdmuxd.daemon.process.ports import free_port
from pdmuxd.engine.core.errors import ProfileError, SettingsError

LEAST_FREE_BYTES = 256 * 2**20
"""For results and the servers' logs."""
_LOOKS_S = 90.0
SGLANG = (
    "import importlib.util as u\n"
    "from pdmuxd.engine.sglang.launch.checks import check_environment\n"
    "check_environment()\n"
    "names = ('torch', 'transformers', 'sgl_kernel', 'sglang.launch_server')\n"
    "missing = [name for name in names if u.find_spec(name) is None]\n"
    "assert not missing, f'{missing[0]} is not installed'"
)
"""A program that fails where a server could not be started."""


def check_machine(*, python: Path, tp_size: int, on_gpu: bool) -> None:
    """Raises: SettingsError for the first thing that is missing, in a line that says what to do."""
    if on_gpu:
        _check_gpus(tp_size)
    said = asyncio.run(complaint_of(SGLANG, os.environ, python))
    if said is not None:
        hint = "name the Python that has SGLang with --python, or try --engine emulated"
        raise SettingsError(f"SGLang cannot be started with {python}: {said}; {hint}")


def check_profile(path: Path | None) -> None:
    """Raises: ProfileError for a file that is no profile."""
    if path is not None:
        try:
            predictors({"": path}, "")
        except OSError as error:
            raise ProfileError(f"--profile {path}: {error.strerror}") from error


def check_room(folder: Path) -> None:
    """A port to listen on, and room for results. Raises: SettingsError."""
    try:
        free_port()
    except OSError as error:
        raise SettingsError(f"no server can be started: {error}") from error
    there = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < LEAST_FREE_BYTES:
        least = LEAST_FREE_BYTES // 2**20
        raise SettingsError(f"--out {folder}: {free // 2**20} MiB are free there, {least} are needed")


def _check_gpus(tp_size: int) -> None:
    if shutil.which("nvidia-smi") is None:
        raise SettingsError("there is no GPU here (no nvidia-smi); --engine emulated does without one")
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    gpus = [line for line in done.stdout.splitlines() if line.strip()]
    if done.returncode or len(gpus) < tp_size:
        found = f"{len(gpus)} GPUs" if not done.returncode else done.stdout.strip() or done.stderr.strip()
        raise SettingsError(f"nvidia-smi finds {found}, {tp_size} are wanted; --engine emulated needs none")
    used = used_bytes()
    if used >= FREE_BYTES:
        raise SettingsError(f"{used / 2**30:.0f} GiB of the GPU's memory are in use: end what uses it first")


async def complaint_of(code: str, environment: Mapping[str, str], python: Path | None = None) -> str | None:
    """The last words of a program, if it fails; of this Python unless another is named."""
    call = partial(
        subprocess.run,
        [str(python or sys.executable), "-P", "-c", code],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=_LOOKS_S,
        check=False,
    )
    try:
        done = await asyncio.to_thread(call)
    except subprocess.TimeoutExpired:
        return f"could not be looked for within {_LOOKS_S:g} s"
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return said[-1] if done.returncode else None
