"""What an operator asks of the supervisor, with real processes."""

from __future__ import annotations

import os
import signal

import pytest


async def test_a_held_engine_stays_and_serves_again_when_it_is_released(make_world):
    world = await make_world()
    await world.listener.next("serving")
    pid = world.supervisor.status().pid

    world.supervisor.hold()
    assert await world.listener.next("draining") == "an operator drains it"
    assert (world.supervisor.status().state, world.supervisor.status().is_held) == ("draining", True)
    world.supervisor.release()
    await world.listener.next("accepting")

    assert (world.supervisor.status().state, world.supervisor.status().pid) == ("serving", pid)
    assert not world.supervisor.is_held


async def test_the_next_engine_is_held_too_when_a_held_one_dies(make_world):
    world = await make_world()
    await world.listener.next("serving")
    world.supervisor.hold()
    os.kill(world.supervisor.status().pid, signal.SIGKILL)

    await world.listener.next("starting")
    await world.listener.next("draining")

    assert world.supervisor.is_held
    world.supervisor.release()
    assert world.supervisor.not_ready_because() is None


@pytest.mark.parametrize("held", [False, True])
async def test_another_engine_serves_without_delay_when_one_is_restarted(make_world, held):
    world = await make_world(backoff_initial_s=3600.0, backoff_max_s=3600.0)
    await world.listener.next("serving")
    pid = world.supervisor.status().pid
    if held:
        world.supervisor.hold()

    world.supervisor.restart()
    assert await world.listener.next("down") == "the engine was ended to be restarted"
    await world.listener.next("accepting")

    status = world.supervisor.status()
    assert (status.state, status.is_held, status.restarts) == ("serving", False, 1)
    assert status.pid != pid


async def test_the_back_off_ends_when_an_engine_that_is_down_is_started(make_world):
    world = await make_world("crash", backoff_initial_s=3600.0, backoff_max_s=3600.0)
    await world.listener.next("down")
    world.profile[0] = "good"

    assert world.supervisor.start_now()
    await world.listener.next("serving")

    assert not world.supervisor.start_now()


async def test_nothing_is_started_when_the_daemon_stops_while_an_engine_is_held(make_world):
    world = await make_world()
    await world.listener.next("serving")
    world.supervisor.hold()
    await world.supervisor.stop()
    assert world.supervisor.status().state == "down"
    assert not world.supervisor.start_now()
    assert not world.supervisor.is_alive()
