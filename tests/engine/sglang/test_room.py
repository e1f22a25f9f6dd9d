"""Room for long prompts is made a slice per turn, and not more than what they may need."""

from types import SimpleNamespace

import pytest

from pdmuxd.engine.sglang.internals import room
from pdmuxd.engine.sglang.internals.room import SLICE_TOKENS, Room

CAPACITY = 320_000


class TokenToKVPoolAllocator:
    free = 0

    def available_size(self):
        return self.free


class SWATokenToKVPoolAllocator(TokenToKVPoolAllocator):
    pass


class Cache:
    def __init__(self, allocator, evictable):
        self.allocator, self.evictable, self.asked = allocator, evictable, []

    def evictable_size(self):
        return self.evictable

    def evict(self, params):
        tokens = min(params.num_tokens, self.evictable)
        self.asked.append(params.num_tokens)
        self.evictable -= tokens
        self.allocator.free += tokens


@pytest.fixture
def scheduler(monkeypatch):
    monkeypatch.setattr(room, "sglang", lambda: SimpleNamespace(EvictParams=SimpleNamespace))
    return scheduler_with(TokenToKVPoolAllocator())


def scheduler_with(allocator, evictable=CAPACITY):
    return SimpleNamespace(
        token_to_kv_pool_allocator=allocator,
        tree_cache=Cache(allocator, evictable),
        max_total_num_tokens=CAPACITY,
    )


def test_nothing_is_evicted_while_no_long_prompt_has_come(scheduler):
    one = Room(scheduler)
    one.note(SLICE_TOKENS - 1)
    assert one.make() == 0
    assert not scheduler.tree_cache.asked


def test_room_for_another_prompt_is_made_in_slices_when_a_long_one_has_come(scheduler):
    one = Room(scheduler)
    one.note(10_000)
    made = [one.make() for _ in range(20)]
    assert max(made) == SLICE_TOKENS
    assert 9_800 <= scheduler.token_to_kv_pool_allocator.free <= 10_000
    assert made[6:] == [0] * 14


def test_a_prompt_as_long_as_the_pool_leaves_the_cache_most_of_it(scheduler):
    one = Room(scheduler)
    one.note(CAPACITY)
    for _ in range(300):
        one.make()
    assert scheduler.token_to_kv_pool_allocator.free == CAPACITY // 16


def test_the_cache_has_its_room_again_when_no_long_prompt_comes_any_more(scheduler):
    one = Room(scheduler)
    one.note(10_000)
    for _ in range(20):
        one.make()
    scheduler.token_to_kv_pool_allocator.free = 0
    assert one.make() > 0
    for _ in range(2000):
        one.make()
    scheduler.token_to_kv_pool_allocator.free = 0
    assert one.make() == 0


def test_nothing_is_asked_of_a_cache_that_holds_nothing_to_evict(scheduler):
    scheduler.tree_cache.evictable = 0
    one = Room(scheduler)
    one.note(10_000)
    assert one.make() == 0
    assert not scheduler.tree_cache.asked


def test_a_pool_of_several_parts_is_left_to_sglang(scheduler):
    other = scheduler_with(SWATokenToKVPoolAllocator())
    one = Room(other)
    one.note(10_000)
    assert one.make() == 0
    assert not other.tree_cache.asked
