"""An engine's life under supervision, with real processes."""

import asyncio
import errno
import os
import re
import signal
from pathlib import Path

import psutil
import pytest

from pdmuxd.daemon.supervisor.supervisor import TRANSITIONS
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.link import procfs
from pdmuxd.engine.link.messages import LINK_PROTOCOL, EngineSettings


def newer(version):
    return EngineSettings(version=version, policy="muxwise", tenants=())


async def wait_until(condition, *, within_s=60.0):
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - conditions here have no event
            await asyncio.sleep(0.005)


async def test_an_engine_serves_with_the_wanted_settings(make_world):
    world = await make_world(version=7)
    address = await world.listener.next("serving")
    status = world.supervisor.status()
    assert (status.state, status.acked_version, status.wanted_version) == ("serving", 7, 7)
    assert world.supervisor.not_ready_because() is None
    assert address.models == {"fake-model"}
    assert address.partition_groups == 2
    assert status.pid == status.hello.pid
    assert address.api_key not in repr(address)


async def test_readiness_says_why_when_the_engine_starts(make_world):
    world = await make_world("mute")
    assert world.supervisor.not_ready_because() == "the engine is starting"


async def test_a_new_engine_serves_when_the_first_is_killed(make_world):
    world = await make_world()
    first = await world.listener.next("serving")
    pid = world.supervisor.status().pid
    world.supervisor.want(newer(2))
    await wait_until(lambda: world.supervisor.not_ready_because() is None)
    os.kill(pid, signal.SIGKILL)
    assert await world.listener.next("down") == "the engine was killed by SIGKILL"
    assert world.supervisor.not_ready_because() is not None
    second = await world.listener.next("serving")
    status = world.supervisor.status()
    assert (status.restarts, status.acked_version, status.last_error) == (1, 2, None)
    assert status.pid != pid
    assert first.api_key != second.api_key
    assert world.listener.states == ["serving", "down", "starting", "serving"]


async def test_the_last_words_are_told_when_an_engine_fails_to_start(make_world):
    world = await make_world("crash")
    reason = await world.listener.next("down")
    assert reason == (
        "the engine exited with code 3 while starting; its last words: fake engine starts | no such device"
    )
    assert "no such device" in world.supervisor.not_ready_because()
    world.profile[0] = "good"
    await world.listener.next("serving")


async def test_the_daemon_ends_when_a_person_must_change_something_before_anything_is_served(make_world):
    world = await make_world("misfit")
    async with asyncio.timeout(60):
        await world.supervisor.ended()
    reason = await world.listener.next("down")
    assert reason.startswith("there is no model folder /m; the engine exited with code 2 while starting")
    assert str(world.plan.log_path) in reason
    assert world.supervisor.fatal == reason
    assert not world.supervisor.is_alive()


async def test_the_daemon_ends_when_the_engine_speaks_another_link_protocol(make_world):
    """Starting the same engine again would bring the same one."""
    world = await make_world("foreign")
    async with asyncio.timeout(60):
        await world.supervisor.ended()
    theirs, ours = LINK_PROTOCOL - 1, LINK_PROTOCOL
    assert world.supervisor.fatal == (
        f"the other end speaks link protocol {theirs}, this end {ours}: the engine's Python "
        "(engine.sglang.python) has another pdmuxd than the daemon; install the same one in both"
    )


async def test_the_longest_wait_follows_when_a_later_engine_needs_a_change(make_world):
    world = await make_world(backoff_max_s=600.0)
    await world.listener.next("serving")
    world.profile[0] = "misfit"
    os.kill(world.supervisor.status().pid, signal.SIGKILL)
    await world.listener.next("down")
    reason = await world.listener.next("down")
    assert reason.endswith("(it will fail again until that is changed)")
    assert world.supervisor.fatal is None
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(world.listener.next("starting"), 0.5)


async def test_readiness_says_what_the_engine_does_when_its_start_takes_long(make_world):
    world = await make_world("slow")
    await wait_until(lambda: world.supervisor.not_ready_because() != "the engine is starting")
    why = world.supervisor.not_ready_because()
    assert re.fullmatch(r"the engine is starting: loading the model's weights, \d+ s", why)


async def test_an_engine_is_replaced_when_it_does_not_serve_in_time(make_world):
    world = await make_world("mute", start_timeout_s=1.0)
    assert "did not serve within 1 s (engine.start_timeout_s)" in await world.listener.next("down")


async def test_an_engine_is_replaced_when_it_refuses_its_first_settings(make_world):
    world = await make_world("refusing", version=3)
    assert await world.listener.next("down") == "the engine refused settings 3: no"


async def test_an_engine_is_replaced_when_it_falls_silent(make_world):
    world = await make_world("silent", heartbeat_timeout_s=0.2)
    await world.listener.next("serving")
    reason = await world.listener.next("down")
    assert "silent" in reason
    evidence = await asyncio.to_thread(Path(reason.rpartition(" ")[2]).read_text)
    assert "fake engine starts" in evidence
    assert "== threads" in evidence
    assert "Hello(" in evidence


async def test_an_engine_is_replaced_when_its_loop_turns_and_nothing_comes_of_it(make_world):
    world = await make_world("stuck", standstill_timeout_s=0.3)
    await world.listener.next("serving")
    reason = await world.listener.next("down")
    assert "made nothing of its requests" in reason
    evidence = await asyncio.to_thread(Path(reason.rpartition(" ")[2]).read_text)
    assert "EngineStats(" in evidence


async def test_a_silent_engine_gets_no_requests_until_it_is_heard(make_world):
    world = await make_world(unresponsive_s=0.5)
    await world.listener.next("serving")
    pid = world.supervisor.status().pid
    os.kill(pid, signal.SIGSTOP)
    assert await world.listener.next("unresponsive") is True
    assert "has sent nothing" in world.supervisor.not_ready_because()
    os.kill(pid, signal.SIGCONT)
    assert await world.listener.next("unresponsive") is False
    assert world.supervisor.not_ready_because() is None
    assert world.supervisor.status().pid == pid


async def test_an_engine_serves_when_nothing_can_be_written_down(make_world, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    world = await make_world(start=False)
    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    monkeypatch.setattr(world.supervisor._log, "open", full)
    monkeypatch.setattr(world.supervisor._log, "bound", full)
    await world.supervisor.start()
    await world.listener.next("serving")
    for _ in range(20):
        await world.listener.next("message")
    assert world.supervisor.not_ready_because() is None


async def test_the_reason_is_clear_when_the_command_does_not_exist(make_world):
    world = await make_world(start=False)
    object.__setattr__(world.plan, "command", lambda port, link, parent: ["/nonexistent/engine"])
    await world.supervisor.start()
    assert "cannot be started: /nonexistent/engine: No such file" in await world.listener.next("down")


async def test_settings_come_into_force_while_serving(make_world):
    world = await make_world()
    await world.listener.next("serving")
    world.supervisor.want(newer(2))
    assert "settings 2" in world.supervisor.not_ready_because()
    await wait_until(lambda: world.supervisor.status().acked_version == 2)


async def test_settings_are_sent_again_when_the_engine_does_not_answer(make_world):
    world = await make_world("deaf")
    await world.listener.next("serving")
    world.supervisor.want(newer(2))
    await wait_until(lambda: world.supervisor.status().acked_version == 2)
    assert world.log.count("settings 2") >= 2


async def test_older_settings_are_ignored_when_edits_race(make_world):
    world = await make_world()
    await world.listener.next("serving")
    world.supervisor.want(newer(5))
    world.supervisor.want(newer(4))
    await wait_until(lambda: world.supervisor.status().acked_version == 5)
    assert world.supervisor.status().wanted_version == 5


async def test_nothing_is_left_when_the_supervisor_stops(make_world, runtime_dir):
    world = await make_world()
    await world.listener.next("serving")
    pid = world.supervisor.status().pid
    await world.supervisor.stop()
    assert procfs.start_ticks(pid) is None
    assert list(runtime_dir.iterdir()) == []
    assert not world.plan.record_path.exists()
    assert world.listener.states == ["serving", "draining", "down"]
    assert not world.supervisor.is_alive()


@pytest.mark.parametrize("at_once", [True, False])
async def test_a_stubborn_engine_is_killed_when_the_supervisor_stops(make_world, at_once):
    world = await make_world("stubborn", stop_grace_s=600.0 if at_once else 0.2)
    await world.listener.next("serving")
    pid = world.supervisor.status().pid
    async with asyncio.timeout(60):
        await world.supervisor.stop(at_once=at_once)
    assert procfs.start_ticks(pid) is None


async def test_the_engines_own_children_end_with_it(make_world):
    world = await make_world("family")
    await world.listener.next("serving")
    pid = world.supervisor.status().pid
    (grandchild,) = (child.pid for child in psutil.Process(pid).children())
    os.kill(pid, signal.SIGKILL)
    await world.listener.next("down")
    await wait_until(lambda: not procfs.command_line(grandchild))


async def test_no_engine_is_started_again_when_it_dies_while_draining(make_world):
    world = await make_world()
    await world.listener.next("serving")
    world.supervisor.begin_drain()
    os.kill(world.supervisor.status().pid, signal.SIGKILL)
    assert await world.listener.next("down") == "the engine was killed by SIGKILL"
    await world.supervisor.stop()
    assert world.supervisor.status().restarts == 0


async def test_an_orphan_is_ended_when_a_daemon_starts_after_a_crash(make_world):
    world = await make_world()
    await world.listener.next("serving")
    pid = world.supervisor.status().pid
    record = world.plan.record_path.read_bytes()
    successor = await make_world(start=False)
    successor.plan.record_path.write_bytes(record)
    await successor.supervisor.start()
    assert await world.listener.next("down") == "the engine was killed by SIGKILL"
    await successor.listener.next("serving")
    assert successor.supervisor.status().pid != pid


def test_no_state_is_a_dead_end():
    assert all(TRANSITIONS[after] for state in TRANSITIONS for after in TRANSITIONS[state])


async def test_an_illegal_transition_changes_nothing(make_world):
    world = await make_world(start=False)
    await world.supervisor.stop()
    before = world.supervisor.status()
    with pytest.raises(EngineError, match="cannot go from down to serving"):
        world.supervisor._enter("serving", None)
    assert world.supervisor.status() == before
