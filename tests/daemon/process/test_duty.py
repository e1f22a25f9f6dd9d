"""A duty runs between its start and the end of its stack, and says how it went."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from pdmuxd.daemon.process.duty import Duty


async def until(is_so) -> None:
    while not is_so():  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.001)


async def test_a_failure_is_told_until_the_next_run_goes_well_when_a_duty_is_periodic() -> None:
    outcomes = [OSError("the disk is full"), None]

    async def store() -> None:
        if outcomes and (error := outcomes.pop(0)) is not None:
            raise error

    duty = Duty(name="storing", work=store, period_s=0.01)
    assert (duty.state().last_run_s, duty.state().failed) == (None, None)
    async with AsyncExitStack() as stack:
        duty.start(stack)
        await until(lambda: duty.state().failed)
        assert duty.state().failed == "OSError: the disk is full"
        await until(lambda: not duty.state().failed)
    assert duty.state().last_run_s is not None


async def test_its_end_is_awaited_and_nothing_runs_after_it_when_the_stack_is_left() -> None:
    done = []

    async def go_on() -> None:
        done.append("begun")
        await asyncio.Event().wait()

    async def write() -> None:
        done.append("written")

    async with AsyncExitStack() as stack:
        Duty(name="keeping", work=go_on, at_end=write).start(stack)
        Duty(name="watching", work=go_on, at_end=lambda: done.append("closed")).start(stack)
        await until(lambda: len(done) == 2)
    assert done == ["begun", "begun", "closed", "written"]
