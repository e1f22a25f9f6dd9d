"""What is written down of an engine that hangs or has died: what it worked on, and what it said last."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

_DUMP_TIMEOUT_S = 5.0
_KEPT_FILES = 5


async def keep_evidence(
    folder: Path,
    pid: int,
    *,
    kind: Literal["hang", "death"],
    reason: str,
    requests: Iterable[str],
    said: Iterable[object],
    log_tail: str,
) -> Path:
    """Write what is known of the engine `pid` to a new file in `folder`; the oldest files of its kind go.

    `requests` are those that it worked on, a line each, `said` its last messages. Of one that hangs the file
    has the stacks, also of its children, by py-spy, if that is installed.
    Raises: OSError if the file cannot be written.
    """
    now = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    parts = [
        f"{now} engine {pid}: {reason}",
        "== requests in flight\n" + "\n".join(requests),
        "== last messages\n" + "\n".join(str(message) for message in said),
        "== end of its log\n" + log_tail,
    ]
    if kind == "hang":
        threads = "== threads\n" + "\n".join(_threads(pid))
        parts[1:1] = [threads, "== stacks (py-spy)\n" + await _stacks(pid)]
    prefix = f"engine-{kind}-"
    path = folder / f"{prefix}{now}-{pid}.txt"
    await asyncio.to_thread(_write, path, "\n\n".join(parts) + "\n", prefix)
    return path


def _write(path: Path, text: str, prefix: str) -> None:
    path.write_text(text)
    path.chmod(0o600)
    for old in sorted(path.parent.glob(f"{prefix}*.txt"))[:-_KEPT_FILES]:
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
