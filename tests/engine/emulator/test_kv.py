"""Invariant 8: KV tokens in equals KV tokens out when idle."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pdmuxd.engine.emulator.kv import Holding, KvPool

BLOCK = 4
CAPACITY = 60


class KvMachine(RuleBasedStateMachine):
    """Admissions, publications and releases in any order, against a recount after every step."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = KvPool(CAPACITY, BLOCK)
        self.held: list[tuple[Holding, list[int], int]] = []

    @rule(keys=st.lists(st.integers(1, 3), min_size=1, max_size=8), short=st.integers(0, BLOCK - 1))
    def admit(self, keys: list[int], short: int) -> None:
        input_tokens = len(keys) * BLOCK - short
        keys = [
            *keys[:-1],
            keys[-1] + 10 * short,
        ]  # a block's key stands for its content, its length included
        available = self.pool.available_tokens
        expected = self.pool.matched_tokens(keys, input_tokens)
        holding = self.pool.admit(keys, input_tokens)
        if holding is None:
            assert self.pool.available_tokens == available
            return
        assert holding.matched_tokens == expected < input_tokens
        assert holding.private_tokens == input_tokens - expected
        self.held.append((holding, keys, input_tokens))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def publish(self, data: st.DataObject) -> None:
        holding, keys, input_tokens = data.draw(st.sampled_from(self.held))
        if holding.leaf is None or holding.private_tokens:
            self.pool.publish(holding, keys, input_tokens)
            assert self.pool.matched_tokens(keys, input_tokens + 1) >= self.pool.block_tokens * (
                len(keys) - 1
            )

    @precondition(lambda self: self.held)
    @rule(data=st.data(), more=st.lists(st.integers(1, 3), max_size=3), tokens=st.integers(0, 9))
    def publish_answer(self, data: st.DataObject, more: list[int], tokens: int) -> None:
        holding, keys, input_tokens = data.draw(st.sampled_from(self.held))
        if self.pool.take(tokens):
            holding.private_tokens += tokens
            self.pool.publish_answer(holding, [*keys[: input_tokens // BLOCK], *more])

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        index = data.draw(st.integers(0, len(self.held) - 1))
        holding, _, _ = self.held.pop(index)
        self.pool.release(holding)

    @precondition(lambda self: not self.held)
    @rule()
    def flush(self) -> None:
        self.pool.flush()
        assert self.pool.free_tokens == CAPACITY

    @invariant()
    def tokens_add_up(self) -> None:
        self.pool.check_integrity([holding for holding, _, _ in self.held])
        assert 0 <= self.pool.free_tokens <= self.pool.available_tokens <= CAPACITY
        if not self.held:
            assert self.pool.available_tokens == CAPACITY


TestKvPool = KvMachine.TestCase
TestKvPool.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def prefilled(pool: KvPool, keys: list[int]) -> Holding:
    holding = pool.admit(keys, len(keys) * BLOCK)
    assert holding is not None
    pool.publish(holding, keys, len(keys) * BLOCK)
    return holding


def test_the_prefix_is_reused_when_two_prompts_share_it() -> None:
    pool = KvPool(CAPACITY, BLOCK)
    prefilled(pool, [1, 2, 3])
    assert pool.matched_tokens([1, 2, 9], 12) == 8
    assert pool.matched_tokens([9, 2, 3], 12) == 0


def test_one_token_is_left_to_prefill_when_the_whole_prompt_is_cached() -> None:
    pool = KvPool(CAPACITY, BLOCK)
    prefilled(pool, [1, 2, 3])
    assert pool.matched_tokens([1, 2, 3], 12) == 8


def test_a_block_that_the_prompt_left_partial_is_full_with_the_answer() -> None:
    pool = KvPool(CAPACITY, BLOCK)
    holding = prefilled_partly(pool)
    assert pool.take(5)
    holding.private_tokens += 5
    pool.publish_answer(holding, [1, 2, 3])
    pool.release(holding)
    assert pool.matched_tokens([1, 2, 3], 12) == 8
    assert pool.tree_tokens == 8
    assert pool.matched_tokens([1, 92], 7) == 4


def test_an_answer_stays_private_while_its_prompt_is_in_use() -> None:
    pool = KvPool(CAPACITY, BLOCK)
    holding = prefilled_partly(pool)
    other = prefilled_partly(pool)
    assert pool.take(5)
    holding.private_tokens += 5
    pool.publish_answer(holding, [1, 2, 3])
    pool.check_integrity([holding, other])
    assert pool.tree_tokens == 6


def prefilled_partly(pool: KvPool) -> Holding:
    holding = pool.admit([1, 92], 6)
    assert holding is not None
    pool.publish(holding, [1, 92], 6)
    return holding


def test_the_least_recently_used_goes_first_when_room_is_needed() -> None:
    pool = KvPool(24, BLOCK)
    for keys in ([1, 2], [3, 4], [5, 6]):
        pool.release(prefilled(pool, keys))
    pool.release(prefilled(pool, [1, 2]))  # used again: [3, 4] is now the oldest
    assert pool.admit([7, 8], 8) is not None
    assert pool.matched_tokens([1, 2], 9) == 8
    assert pool.matched_tokens([5, 6], 9) == 8
    assert pool.matched_tokens([3, 4], 9) == 0


def test_what_is_in_use_stays_when_room_is_needed() -> None:
    pool = KvPool(12, BLOCK)
    prefilled(pool, [1, 2])
    assert pool.admit([7, 8], 8) is None
    assert pool.matched_tokens([1, 2], 9) == 8


def test_memory_is_bounded_by_the_blocks_when_the_same_prompts_come_again_and_again() -> None:
    pool = KvPool(CAPACITY, BLOCK)
    for turn in range(2000):
        keys = [turn % 5, 1]
        holding = pool.admit(keys, 2 * BLOCK)
        assert holding is not None
        pool.publish(holding, keys, 2 * BLOCK)
        pool.release(holding)
    assert len(pool._lru) <= 2 * CAPACITY // BLOCK + 64
    pool.check_integrity([])
    pool.flush()
    assert pool.free_tokens == CAPACITY
