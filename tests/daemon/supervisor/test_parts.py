"""The supervisor's parts, each alone."""

import asyncio
import errno
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.daemon.process.background import first_to_end
from pdmuxd.daemon.supervisor import child, orphan
from pdmuxd.daemon.supervisor.backoff import HEALTHY_S, Backoff
from pdmuxd.daemon.supervisor.child import describe_exit, engine_environment
from pdmuxd.daemon.supervisor.enginelog import EngineLog
from pdmuxd.daemon.supervisor.plan import emulator_command
from pdmuxd.daemon.supervisor.silence import TICK_S, Silence, Standstill
from pdmuxd.engine.core.observing import NOTHING_HIDDEN
from pdmuxd.engine.link import procfs
from pdmuxd.engine.link.messages import EngineStats

_UP_AND_WAIT = "print('up'); signal.pause()"


def test_delays_double_up_to_the_limit_when_engines_keep_failing():
    backoff = Backoff(initial_s=0.5, max_s=3.0)
    assert [backoff.delay_s(served_s=0.0) for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]


def test_delays_start_anew_when_an_engine_was_healthy():
    backoff = Backoff(initial_s=0.5, max_s=30.0)
    for _ in range(4):
        backoff.delay_s(served_s=HEALTHY_S - 1)
    assert backoff.delay_s(served_s=HEALTHY_S) == 0.5


@given(st.floats(0.001, 10), st.floats(0.001, 100), st.lists(st.floats(0, 120), max_size=200))
def test_a_delay_is_never_longer_than_the_limit(initial_s, max_s, served):
    backoff = Backoff(initial_s=initial_s, max_s=max_s)
    assert all(0 < backoff.delay_s(served_s=served_s) <= max_s for served_s in served)


@pytest.fixture
def sleeper():
    process = subprocess.Popen(
        [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, start_new_session=True
    )
    yield process
    process.kill()
    process.communicate()


async def test_the_remembered_process_is_killed(tmp_path, sleeper):
    path = tmp_path / "engine.json"
    link = tmp_path / "sock"
    link.touch()
    await orphan.remember(path, sleeper.pid, link)
    assert await orphan.end_orphan(path) == sleeper.pid
    assert not link.exists()
    assert sleeper.wait() == -signal.SIGKILL
    assert not path.exists()


async def test_a_process_is_remembered_when_its_arguments_are_not_in_place_yet(
    tmp_path, sleeper, monkeypatch
):
    not_yet = iter([(), ()])
    arguments = procfs.command_line
    monkeypatch.setattr(procfs, "command_line", lambda pid: next(not_yet, None) or arguments(pid))
    path = tmp_path / "engine.json"
    await orphan.remember(path, sleeper.pid, tmp_path / "sock")
    assert await orphan.end_orphan(path) == sleeper.pid


async def test_nothing_is_remembered_when_the_process_has_ended(tmp_path, sleeper):
    sleeper.kill()
    path = tmp_path / "engine.json"
    os.waitid(os.P_PID, sleeper.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
    await orphan.remember(path, sleeper.pid, tmp_path / "sock")
    assert not path.exists(), "a zombie"
    sleeper.wait()
    await orphan.remember(path, sleeper.pid, tmp_path / "sock")
    assert not path.exists()


@pytest.mark.parametrize("change", [{"start_ticks": 1}, {"command": ("other",)}])
async def test_another_process_is_spared_when_its_id_was_given_again(tmp_path, sleeper, change):
    path = tmp_path / "engine.json"
    await orphan.remember(path, sleeper.pid, tmp_path / "sock")
    record = msgspec.json.decode(path.read_bytes(), type=orphan.EngineRecord)
    path.write_bytes(msgspec.json.encode(msgspec.structs.replace(record, **change)))
    assert await orphan.end_orphan(path) is None
    assert sleeper.poll() is None
    assert not path.exists()


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"pid": "x"}', b"\xff"])
async def test_nobody_is_killed_when_the_record_cannot_be_read(tmp_path, content):
    path = tmp_path / "engine.json"
    if content is not None:
        path.write_bytes(content)
    assert await orphan.end_orphan(path) is None
    assert not path.exists()


async def test_nobody_is_killed_when_the_process_is_gone(tmp_path, sleeper):
    path = tmp_path / "engine.json"
    await orphan.remember(path, sleeper.pid, tmp_path / "sock")
    sleeper.kill()
    sleeper.wait()
    assert await orphan.end_orphan(path) is None


def test_a_process_is_described_by_proc():
    assert procfs.start_ticks(os.getpid()) > 0
    assert procfs.command_line(os.getpid())[0]
    assert procfs.start_ticks(2**22 + 1) is None
    assert procfs.command_line(2**22 + 1) is None


def test_the_log_is_turned_over_when_it_is_too_large(tmp_path):
    log = EngineLog(tmp_path / "engine.log", max_bytes=10)
    descriptor = log.open()
    try:
        assert not log.bound()
        os.write(descriptor, b"first engine line\n")
        assert log.bound()
        os.write(descriptor, b"after\n")
    finally:
        os.close(descriptor)
    assert (tmp_path / "engine.log.1").read_text() == "first engine line\n"
    assert log.path.read_text() == "after\n"
    assert log.path.stat().st_mode & 0o777 == 0o600


def test_the_log_is_cut_when_there_is_no_room_for_a_copy(tmp_path, monkeypatch):
    def full(_source, target):
        Path(target).write_text("half")
        raise OSError(errno.ENOSPC, "No space left on device")

    path = tmp_path / "engine.log"
    log = EngineLog(path, max_bytes=10)
    path.write_text("x" * 100)
    monkeypatch.setattr("shutil.copyfile", full)
    assert log.bound()
    assert path.read_text() == ""
    assert not path.with_name("engine.log.1").exists()


def test_silence_counts_only_the_time_in_which_the_daemon_could_listen():
    now_s = [0.0]
    silence = Silence(lambda: now_s[0])
    for _ in range(8):
        now_s[0] += TICK_S
        silence.tick()
    assert silence.silent_s == 8 * TICK_S
    now_s[0] += 30.0  # the machine was moved; heartbeats wait to be read
    silence.tick()
    assert silence.silent_s == 10 * TICK_S
    silence.heard()
    now_s[0] += TICK_S
    silence.tick()
    assert silence.silent_s == TICK_S


def test_last_words_are_those_of_the_last_engine(tmp_path):
    log = EngineLog(tmp_path / "engine.log")
    assert log.last_words() == "nothing"
    for text in (b"old\n", b"one\n\n two \nthree\nfour\n"):
        descriptor = log.open()
        os.write(descriptor, text)
        os.close(descriptor)
    assert log.last_words() == "two | three | four"


@pytest.mark.parametrize(
    ("code", "text"),
    [(0, "exited with code 0"), (-9, "was killed by SIGKILL"), (-200, "was killed by signal 200")],
)
def test_an_exit_is_told_in_words(code, text):
    assert describe_exit(code) == text


def test_the_engine_does_not_get_what_is_meant_for_the_daemon(monkeypatch):
    monkeypatch.setenv("NOTIFY_SOCKET", "/run/x")
    monkeypatch.setenv("PDMUXD_DATABASE_URL", "postgresql://u:secret@h/d")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("PDMUXD_SPLIT_MARLIN", "1")
    environment = engine_environment({"PDMUXD_ENGINE_API_KEY": "k"})
    assert environment["PDMUXD_ENGINE_API_KEY"] == "k"
    assert environment["PDMUXD_SPLIT_MARLIN"] == "1"
    assert environment["CUDA_VISIBLE_DEVICES"] == "0"
    assert not environment.keys() & {"NOTIFY_SOCKET", "PDMUXD_DATABASE_URL"}


def test_the_emulators_command_says_what_it_serves():
    command = emulator_command(profile="p", policy="static:96,36", served_model="m")
    words = list(command(8000, "ipc:///x", 42))
    assert words[words.index("--parent-pid") + 1] == "42"
    assert words[words.index("--served-model") + 1] == "m"
    assert "--served-model" not in emulator_command(profile="p", policy="q", served_model=None)(1, "l", 2)


async def test_the_others_are_cancelled_when_one_fails():
    cancelled = asyncio.Event()

    async def forever():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def fail():
        raise ValueError("first")

    with pytest.raises(ValueError, match="first"):
        await first_to_end(forever(), fail())
    assert cancelled.is_set()


@pytest.mark.parametrize(
    ("program", "grace_s", "is_killed"),
    [
        (
            "import os, signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(0)); " + _UP_AND_WAIT,
            60.0,
            False,
        ),
        (
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); signal.pause()",
            0.05,
            True,
        ),
        (
            "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up'); signal.pause()",
            0.0,
            True,
        ),
    ],
)
async def test_a_process_is_killed_only_when_it_outlives_its_grace(program, grace_s, is_killed):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as printed:
        process = child.start([sys.executable, "-u", "-c", program], environment=os.environ, log=writing)
        os.close(writing)
        assert await asyncio.to_thread(printed.readline) == b"up\n"
    assert await child.end(process, grace_s=grace_s) is is_killed
    assert (process.returncode == -signal.SIGKILL) is is_killed


def test_sockets_are_removed_when_nobody_listens_on_them(tmp_path):
    with socket.socket(socket.AF_UNIX) as killed, socket.socket(socket.AF_UNIX) as living:
        killed.bind(str(tmp_path / "engine-dead.sock"))
        living.bind(str(tmp_path / "engine-live.sock"))
        living.listen()
        for name in ("engine-dead.sock.tokens", "engine-dead.sock.tokenizer.json"):
            (tmp_path / name).touch()  # where its scheduler's tokens came in
        (tmp_path / "engine-note.txt").touch()
        (tmp_path / "engine-file.sock").touch()
        killed.close()
        assert orphan.remove_stale_sockets(tmp_path) == 1
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {"engine-live.sock", "engine-note.txt", "engine-file.sock"}


def _heartbeat(**fields):
    zeros = dict.fromkeys(EngineStats.__struct_fields__, 0) | {"policy": "auto", "hidden": NOTHING_HIDDEN}
    return EngineStats(**zeros | fields)


@pytest.mark.parametrize(
    ("second", "stuck_s"),
    [
        ({"running": 1, "steps": 5}, 2.0),
        ({"waiting": 1, "steps": 5}, 2.0),
        ({"running": 1, "steps": 6}, 0.0),
        ({"running": 1, "steps": 5, "output_tokens": 1}, 0.0),
        ({"running": 0, "steps": 5}, 0.0),
    ],
)
def test_an_engine_stands_still_when_it_has_requests_and_makes_nothing_of_them(second, stuck_s):
    standstill = Standstill()
    standstill.heard(_heartbeat(running=1, steps=5, uptime_s=10.0))
    standstill.heard(_heartbeat(uptime_s=12.0, **second))
    assert standstill.stuck_s == stuck_s
    standstill.heard(_heartbeat(uptime_s=13.0, running=1, steps=9))
    assert standstill.stuck_s == 0.0
