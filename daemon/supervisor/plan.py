"""What to start, and with which limits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

KEY_VARIABLE = "PDMUXD_ENGINE_API_KEY"
HOST = "127.0.0.1"

Command = Callable[[int, str, int], Sequence[str]]
"""From (port, link address, the daemon's pid) to the command line of an engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlan:
    """Everything that the supervisor needs to run engines one after the other."""

    command: Command
    """With the policy and the splits of the settings."""
    command_for: Callable[[str, str | None], Command] | None = None
    """With a policy, and splits (None: the settings') as `engine.sglang.partitions` has them."""
    state_dir: Path
    """Holds engine.json and engine.log."""
    runtime_dir: Path
    """Holds the link's socket; private to this user, and short (a socket's path has at most 107 bytes)."""
    start_timeout_s: float
    backoff_initial_s: float
    backoff_max_s: float
    stop_grace_s: float = 5.0
    """Between asking an engine to end and killing it."""
    heartbeat_timeout_s: float = 30.0
    """A serving engine that sends nothing for this long hangs and is replaced."""

    standstill_timeout_s: float = 60.0
    """One whose heartbeats say for so long that it makes nothing of its requests is replaced too."""
    adopt_timeout_s: float = 15.0
    """In which an engine that is taken over from another daemon must answer."""

    unresponsive_s: float = 2.0
    """One that sends nothing for this long gets no new requests until it does."""

    token_buffer_bytes: int | None = None
    """Of an answer whose tokens come from the scheduler, what may wait for its client; None: no tokens do."""

    @property
    def record_path(self) -> Path:
        """Which process the engine is."""
        return self.state_dir / "engine.json"

    @property
    def log_path(self) -> Path:
        """What the engine prints."""
        return self.state_dir / "engine.log"


def emulator_command(*, profile: str, policy: str, served_model: str | None) -> Command:
    """The command of the emulated engine."""

    def command(port: int, link: str, parent_pid: int) -> Sequence[str]:
        # -P: a folder called `pdmuxd` in the current directory must not be taken for the package.
        arguments = [sys.executable, "-P", "-m", "pdmuxd.engine.emulator.server"]
        arguments += ["--host", HOST, "--port", str(port), "--link", link, "--parent-pid", str(parent_pid)]
        arguments += ["--profile", profile, "--policy", policy]
        if served_model is not None:
            arguments += ["--served-model", served_model]
        return arguments

    return command


def sglang_command(
    *,
    python: Path,
    model: str,
    served_model: str,
    policy: str,
    tp_size: int,
    partitions: str | None,
    partition_kernels: bool,
    kernels_file: Path | None,
    extra: Sequence[str],
) -> Command:
    """The command of a real engine."""

    def command(port: int, link: str, parent_pid: int) -> Sequence[str]:
        arguments = [str(python), "-P", "-m", "pdmuxd.engine.sglang"]
        arguments += ["--host", HOST, "--port", str(port), "--link", link, "--parent-pid", str(parent_pid)]
        arguments += ["--model", model, "--served-model", served_model, "--policy", policy]
        arguments += ["--tp-size", str(tp_size)]
        if partitions is not None:
            arguments += ["--partitions", partitions]
        if not partition_kernels:
            arguments += ["--no-partition-kernels"]
        elif kernels_file is not None:
            arguments += ["--kernels-file", str(kernels_file)]
        return [*arguments, "--", *extra] if extra else arguments

    return command
