"""A PostgreSQL server of the tests' own, from Debian's package; its data are gone with it."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import tempfile
import time
from itertools import count
from pathlib import Path

import psutil
from sqlalchemy import create_engine, text

from pdmuxd.controlplane.database.opening import upgrade
from pdmuxd.daemon.process.ports import free_port

PASSWORD = "hunter2-of-the-database"
_USER = "pdmuxd"


def find_programs() -> Path | None:
    """Where initdb and postgres are; None if they are not installed."""
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((place for place in places if (place / "pg_isready").exists()), None)


_PR_SET_PDEATHSIG = 1


def _end_with_parent() -> None:
    """Shut down when the tests are gone: workers of pytest-xdist run no exit handlers."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGINT)


_PREFIX = "pdmuxd-postgres-"


def _remove_orphans() -> None:
    """The data of servers whose tests were killed: 3 GB each after a whole run."""
    for place in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*-*"):
        owner = place.name.removeprefix(_PREFIX).partition("-")[0]
        if not psutil.pid_exists(int(owner)):
            shutil.rmtree(place, ignore_errors=True)


class PostgresServer:
    """Listens on loopback. As root it runs as the package's own user, since PostgreSQL refuses root."""

    def __init__(self, programs: Path) -> None:
        self._programs = programs
        self._as = {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}
        _remove_orphans()
        self._place = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-"))
        self._data = self._place / "data"
        if self._as:
            shutil.chown(self._place, **self._as)
        password = self._place / "password"
        password.write_text(PASSWORD)
        password.chmod(0o644)
        self._run(
            "initdb", f"--pgdata={self._data}", f"--username={_USER}", "--auth=scram-sha-256",
            f"--pwfile={password}", "--no-sync", "--encoding=UTF8", "--locale=C",
        )  # fmt: skip
        self.port = free_port()
        self._numbers = count(1)
        self._process: subprocess.Popen[bytes] | None = None
        self.start()
        upgrade(self.url("template1"))

    def start(self) -> None:
        with (self._place / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._programs / "postgres"), "-D", str(self._data), "-p", str(self.port),
                    "-c", "listen_addresses=127.0.0.1", "-c", f"unix_socket_directories={self._place}",
                    "-c", "fsync=off", "-c", "max_connections=200", "-c", "timezone=Asia/Kolkata",
                ],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/",
                preexec_fn=_end_with_parent, **self._as,
            )  # fmt: skip
        deadline_s = time.monotonic() + 60
        while not self._is_ready():
            if time.monotonic() > deadline_s or self._process.poll() is not None:
                raise AssertionError((self._place / "log").read_text())
            time.sleep(0.05)

    def stop(self) -> None:
        """As it would be shut down: open connections are ended."""
        self._end(signal.SIGINT)

    def crash(self) -> None:
        """Without writing anything any more; the next start recovers."""
        self._end(signal.SIGQUIT)

    def freeze(self) -> None:
        """Stop it and all its connections' processes, as a machine that swaps does: it answers nothing."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal_all(signal.SIGCONT)

    def _signal_all(self, what: signal.Signals) -> None:
        assert self._process is not None
        top = psutil.Process(self._process.pid)
        for each in (top, *top.children(recursive=True)):
            each.send_signal(what)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(30)
            self._process = None

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self._place, ignore_errors=True)

    def url(self, database: str) -> str:
        return f"postgresql://{_USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def new_database(self, *, empty: bool = False) -> str:
        """The URL of a database of its own, at this version's schema unless it is to be empty."""
        name = f"test_{next(self._numbers)}"
        template = "template0" if empty else "template1"
        engine = create_engine(
            self.url("postgres").replace("postgresql:", "postgresql+psycopg:"), isolation_level="AUTOCOMMIT"
        )
        try:
            with engine.connect() as connection:
                connection.execute(text(f"CREATE DATABASE {name} TEMPLATE {template}"))
        finally:
            engine.dispose()
        return self.url(name)

    def _is_ready(self) -> bool:
        ready = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(ready, check=False).returncode == 0

    def _run(self, program: str, *args: str) -> None:
        done = subprocess.run(
            [str(self._programs / program), *args], capture_output=True, text=True, cwd="/", **self._as
        )
        assert done.returncode == 0, done.stdout + done.stderr
