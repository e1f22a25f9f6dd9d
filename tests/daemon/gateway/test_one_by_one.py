"""Requests work one by one, and tokens are read between two of them."""

from __future__ import annotations

import asyncio
import socket
import time

import uvloop

from pdmuxd.daemon.gateway.one_by_one import OneByOne

REQUESTS = 20
WORK_S = 0.003


def work() -> None:
    end_s = time.perf_counter() + WORK_S
    while time.perf_counter() < end_s:
        pass


def lateness_s(*, one_by_one: bool) -> float:
    """The longest that a token waits to be read while REQUESTS come at once and work for WORK_S each."""

    async def measured() -> float:
        loop, turns = asyncio.get_running_loop(), OneByOne()
        engine, ours = socket.socketpair()
        ours.setblocking(False)
        late_s: list[float] = []

        def read() -> None:
            late_s.append(time.perf_counter() - float(ours.recv(64)))

        async def request(number: int) -> None:
            if number == 1:
                engine.send(str(time.perf_counter()).encode())
            if one_by_one:
                await turns.turn()
            work()

        with engine, ours:
            loop.add_reader(ours, read)
            await asyncio.gather(*(request(number) for number in range(REQUESTS)))
            await asyncio.sleep(0.01)
            loop.remove_reader(ours)
        assert len(late_s) == 1
        return late_s[0]

    return uvloop.run(measured())


def test_a_token_waits_for_one_request_and_not_for_all_that_came_with_it() -> None:
    assert lateness_s(one_by_one=False) > (REQUESTS - 2) * WORK_S
    assert min(lateness_s(one_by_one=True) for _ in range(5)) < 3 * WORK_S


def test_turns_are_taken_in_order_one_in_each_round_of_the_loop() -> None:
    async def taken() -> list[tuple[int, int]]:
        loop, turns, rounds = asyncio.get_running_loop(), OneByOne(), 0
        seen: list[tuple[int, int]] = []

        def count() -> None:
            nonlocal rounds
            rounds += 1
            if len(seen) < REQUESTS:
                loop.call_soon(count)

        async def request(number: int) -> None:
            await turns.turn()
            seen.append((number, rounds))

        loop.call_soon(count)
        await asyncio.gather(*(request(number) for number in range(REQUESTS)))
        return seen

    seen = asyncio.run(taken())
    assert [number for number, _ in seen] == list(range(REQUESTS))
    assert len({in_round for _, in_round in seen}) == REQUESTS


def test_who_left_takes_no_turn_and_the_others_have_theirs() -> None:
    async def left() -> list[int]:
        turns, seen = OneByOne(), list[int]()

        async def request(number: int) -> None:
            await turns.turn()
            seen.append(number)

        tasks = [asyncio.create_task(request(number)) for number in range(6)]
        await asyncio.sleep(0)
        for number in (0, 2, 5):
            tasks[number].cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        again = asyncio.create_task(request(6))
        await asyncio.wait_for(again, 1.0)
        return seen

    assert asyncio.run(left()) == [1, 3, 4, 6]
