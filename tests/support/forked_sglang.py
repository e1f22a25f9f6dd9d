"""SGLang's servers without importing SGLang for each of their processes: a process that has is forked.

An import takes 15 to 19 s of a core, and a server is three processes. Here one process for all tests imports
it and runs nothing of it. It is forked for a server, and twice more before that runs anything: what
SGLang spawns with `multiprocessing` runs in one of those copies, with the same arguments through the same
pipe, and with the environment of that moment. So each process is its server's own, and has nothing of it but
what a new one would have. Ranks must not come this way: they would have one seed of hashes, and a set
would have the same order in each.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import gc
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from importlib import import_module, invalidate_caches
from pathlib import Path
from typing import Any, NoReturn

COPIES = 2
"""Of a server with one rank: its scheduler and its detokenizer."""
MODULES = (
    *("sglang.launch_server", "sglang.srt.entrypoints.http_server", "sglang.srt.managers.scheduler"),
    *("sglang.srt.managers.detokenizer_manager", "sglang.srt.models.registry"),
)
_POLL_S = 0.02
_MOST_BYTES = 2**18
_ABOVE = 512
"""Descriptors are moved up here before they get the numbers that are asked for."""
_sources: dict[Path, Source] = {}


class Source:
    """The process that is forked; it ends with this one."""

    def __init__(self, python: Path, env: Mapping[str, str]) -> None:
        """`env` is what SGLang finds when it is imported."""
        self._folder = tempfile.TemporaryDirectory(prefix="pdm")
        self.path = str(Path(self._folder.name) / "source")
        self._process = subprocess.Popen(
            [str(python), "-P", __file__, self.path],
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.pid = self._process.pid
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "SGLang cannot be imported"
        atexit.register(self.close)

    def close(self) -> None:
        """Let it end."""
        self._process.communicate()
        self._folder.cleanup()


def source_of(python: Path, env: Mapping[str, str]) -> Source:
    """The one of this SGLang; made at first."""
    if python not in _sources:
        _sources[python] = Source(python, env)
    return _sources[python]


class ForkedProcess:
    """A module of SGLang's environment that runs as `python -m` would run it; what `Popen` is for others."""

    def __init__(self, source: Source, words: Sequence[str], env: Mapping[str, str], log: Path) -> None:
        """`words` are the module's name and its arguments; `log` is where its output goes."""
        self.returncode: int | None = None
        self._end = socket.socket(socket.AF_UNIX)
        self._end.connect(source.path)
        self._end.sendall(json.dumps([list(words), dict(env), str(log)]).encode() + b"\n")
        self._said = self._end.makefile("r")
        self.pid = int(self._said.readline())

    def poll(self) -> int | None:
        """Its exit code, negative for a signal; None while it runs."""
        if self.returncode is None and select.select([self._end], [], [], 0)[0]:
            self.returncode = int(self._said.readline() or -signal.SIGKILL)
            self._said.close()  # the socket stays open as long as this is
            self._end.close()
        return self.returncode

    def wait(self, timeout: float = 60.0) -> int:
        """Raises: subprocess.TimeoutExpired."""
        end_s = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end_s:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(_POLL_S)
        return code

    def send_signal(self, number: int) -> None:
        """Signal it while it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)


# In SGLang's environment ---------------------------------------------------------------------------------


def main(path: str) -> None:
    """Import, then fork for each that connects; it is told the process's id, and later its exit code."""
    for name in MODULES:
        import_module(name)
    gc.collect()
    gc.freeze()
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen()
    os.write(1, b"ready\n")
    running: dict[int, socket.socket] = {}
    while True:
        readable, _, _ = select.select([listener, 0], [], [], _POLL_S)
        if 0 in readable:
            return
        if listener in readable:
            end, _ = listener.accept()
            order = json.loads(end.makefile("r").readline())
            pid = os.fork()
            if not pid:
                for other in (listener, end, *running.values()):
                    other.close()
                _become(*order)
            end.sendall(b"%d\n" % pid)
            running[pid] = end
        for pid in list(running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with running.pop(pid) as end, contextlib.suppress(OSError):
                    end.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))


def _become(words: list[str], env: dict[str, str], log: str) -> NoReturn:
    os.setsid()
    output, nothing = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT), os.open(os.devnull, os.O_RDONLY)
    for number, opened in enumerate((nothing, output, output)):
        os.dup2(opened, number)
    _use(env)
    known = set(sys.path)
    sys.path[:0] = [each for each in env.get("PYTHONPATH", "").split(os.pathsep) if each not in known]
    invalidate_caches()
    from multiprocessing import util

    copies, spawn = [_copy() for _ in range(COPIES)], util.spawnv_passfds

    def spawned(path: bytes, args: Sequence[str], fds: Sequence[int]) -> int:
        if not copies or args[-1] != "--multiprocessing-fork":
            return int(spawn(path, args, fds))
        pid, end = copies.pop()
        with end:
            said = json.dumps([args[-2], list(fds), dict(os.environ)]).encode()
            socket.send_fds(end, [said], list(fds))
        return pid

    util.spawnv_passfds = spawned
    sys.argv = words
    runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    sys.exit(0)


def _use(env: Mapping[str, str]) -> None:
    os.environ.clear()
    os.environ.update(env)


def _copy() -> tuple[int, socket.socket]:
    """A process that waits to be given what `multiprocessing` would start Python with."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid:
        theirs.close()
        return pid, ours
    ours.close()
    said, given, *_ = socket.recv_fds(theirs, _MOST_BYTES, 16)
    theirs.close()
    if not said:
        os._exit(0)
    program, numbers, env = json.loads(said)
    above = [fcntl.fcntl(each, fcntl.F_DUPFD, _ABOVE) for each in given]
    for each in given:
        os.close(each)
    for number, each in zip(numbers, above, strict=True):
        os.dup2(each, number)
        os.close(each)
    _use(env)
    sys.argv = ["-c", "--multiprocessing-fork"]
    names: dict[str, Any] = {}
    exec(program, names)
    sys.exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
