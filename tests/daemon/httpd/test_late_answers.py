"""Wrong keys are answered late, in their order, and never all in one turn of the loop."""

import asyncio
from collections import Counter

from pdmuxd.daemon.httpd.late_answers import LateAnswers
from pdmuxd.daemon.httpd.listeners import MANY, Listeners
from pdmuxd.daemon.settings import Settings


class Held:
    def __init__(self, number):
        self.peer = str(number)


async def answered(late, held, count):
    turn, seen, done = 0, [], asyncio.Event()

    def answer(which):
        seen.append((which, turn))
        if len(seen) == count:
            done.set()

    for each in held:
        late.add(each, lambda each=each: answer(each))

    async def others():
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    other = asyncio.create_task(others())
    async with asyncio.timeout(30):
        await done.wait()
    other.cancel()
    return seen


async def test_others_have_their_turns_when_all_answers_are_due_at_once():
    held = [Held(number) for number in range(200)]
    seen = await answered(LateAnswers(0.0), held, 200)
    assert [which for which, _ in seen] == held
    assert max(Counter(turn for _, turn in seen).values()) <= 8


async def test_a_connection_that_made_room_is_not_answered():
    late, gone, kept = LateAnswers(0.0), [Held(number) for number in range(50)], Held("kept")

    async def until_answered():
        for each in gone:
            late.add(each, lambda: gone.clear())
            late.discard(each)
        return await answered(late, [kept], 1)

    assert [which for which, _ in await until_answered()] == [kept]
    assert len(gone) == 50


async def test_no_answer_comes_before_its_time():
    now_s = [0.0]
    late, said = LateAnswers(5.0, lambda: now_s[0]), []
    late.add(Held(1), lambda: said.append(1))
    now_s[0] = 4.9
    late._answer()
    assert said == []
    now_s[0] = 5.0
    late._answer()
    assert said == [1]


def test_a_flood_is_told_when_more_connections_came_than_are_looked_through_at_once():
    listeners = Listeners.of(Settings())
    for asked in (MANY, MANY + 1):
        for number in range(asked):
            connections = listeners.admin if number % 2 else listeners.data
            assert connections.admit("a") is None
            connections.leave("a")
        assert listeners.many_came() is (asked > MANY)
    assert not listeners.many_came()
