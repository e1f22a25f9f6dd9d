"""What is written down of an engine that hangs, before it is ended: where it stands, what it said last."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path

_DUMP_TIMEOUT_S = 5.0
_KEPT_FILES = 5
_PREFIX = "engine-hang-"


async def keep_evidence(
    folder: Path, pid: int, *, reason: str, said: Iterable[object], log_tail: str
) -> Path:
    """Write what is known of the engine `pid` to a new file in `folder`; the oldest such files go.

    `said` are its last messages. The stacks, also of its children, come from py-spy, if it is installed.
    Raises: OSError if the file cannot be written.
    """
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    parts = [
        f"{now} engine {pid}: {reason}",
        "== threads\n" + "\n".join(_threads(pid)),
        "== stacks (py-spy)\n" + await _stacks(pid),
        "== last messages\n" + "\n".join(str(message) for message in said),
        "== end of its log\n" + log_tail,
    ]
    path = folder / f"{_PREFIX}{now}-{pid}.txt"
    await asyncio.to_thread(_write, path, "\n\n".join(parts) + "\n")
    return path


def _write(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    for old in sorted(path.parent.glob(f"{_PREFIX}*.txt"))[:-_KEPT_FILES]:
        old.unlink(missing_ok=True)


def _threads(pid: int) -> Iterable[str]:
    """Name, state and the kernel function that each thread sleeps in."""
    for task in sorted(Path(f"/proc/{pid}/task").glob("*")):
        facts = [task.name]
        for name in ("comm", "wchan"):
            with contextlib.suppress(OSError):
                facts.append((task / name).read_text().strip() or "-")
        with contextlib.suppress(OSError):
            status = (task / "status").read_text()
            facts.append(status.partition("State:")[2].partition("\n")[0].strip())
        yield "  ".join(facts)


async def _stacks(pid: int) -> str:
    beside = Path(sys.executable).with_name("py-spy")
    program = str(beside) if beside.is_file() else shutil.which("py-spy")
    if program is None:
        return "py-spy is not installed"
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            "dump",
            "--subprocesses",
            "--pid",
            str(pid),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
    except OSError as error:
        return f"py-spy cannot be started: {error.strerror}"
    try:
        async with asyncio.timeout(_DUMP_TIMEOUT_S):
            output, _ = await process.communicate()
    except TimeoutError:
        return f"py-spy did not end within {_DUMP_TIMEOUT_S:g} s"
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    return output.decode(errors="replace")
