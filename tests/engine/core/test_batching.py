from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from observations import observe, running_prefill, waiting

from pdmuxd.engine.core.batching import DECODE_HEADROOM_TOKENS, form_prefill_batch, shape_of
from pdmuxd.engine.core.types import EngineLimits


def ids(batch: tuple[object, ...]) -> list[str]:
    return [request.request_id for request in batch]  # type: ignore[attr-defined]


@given(
    lengths=st.lists(st.integers(1, 40_000), max_size=20),
    decode_bs=st.integers(0, 20),
    kv_free_tokens=st.integers(0, 100_000),
)
def test_a_batch_is_a_prefix_within_the_limits_when_requests_wait(
    lengths: list[int], decode_bs: int, kv_free_tokens: int
) -> None:
    queue = tuple(waiting(i, n) for i, n in enumerate(lengths))
    limits = EngineLimits(max_decode_bs=16)
    batch = form_prefill_batch(
        observe(queue=queue, decode_bs=decode_bs, kv_free_tokens=kv_free_tokens, limits=limits)
    )
    assert batch == queue[: len(batch)]
    assert len(batch) <= max(0, 16 - decode_bs)
    total = sum(r.new_tokens for r in batch)
    assert len(batch) <= 1 or total <= limits.max_prefill_tokens
    if decode_bs and batch:
        assert total <= kv_free_tokens - DECODE_HEADROOM_TOKENS * decode_bs
    if queue and not decode_bs:
        assert batch, "an idle engine always admits the first request"


def test_a_policys_own_limit_is_within_the_engines() -> None:
    queue = (waiting(0, 3000), waiting(1, 3000), waiting(2, 3000))
    obs = observe(queue=queue, limits=EngineLimits(max_prefill_tokens=6000))
    assert ids(form_prefill_batch(obs, max_tokens=8192)) == ["r0", "r1"]
    assert ids(form_prefill_batch(obs, max_tokens=5000)) == ["r0"]


def test_nobody_overtakes_when_the_second_request_is_too_long() -> None:
    queue = (waiting(0, 10_000), waiting(1, 10_000), waiting(2, 10))
    assert ids(form_prefill_batch(observe(queue=queue))) == ["r0"]


def test_a_request_is_taken_when_it_fills_the_last_of_the_kv_pool() -> None:
    room = 100 + 2 * DECODE_HEADROOM_TOKENS
    for free_tokens, taken in ((room, ["r0"]), (room - 1, [])):
        obs = observe(queue=(waiting(0, 100),), decode_bs=2, kv_free_tokens=free_tokens)
        assert ids(form_prefill_batch(obs)) == taken


def test_slots_are_kept_for_the_set_aside_batch_when_one_is_preempted() -> None:
    limits = EngineLimits(max_decode_bs=2)
    obs = observe(queue=(waiting(1, 10), waiting(2, 10)), preempted=running_prefill(100), limits=limits)
    assert ids(form_prefill_batch(obs)) == ["r1"]


def test_the_sums_are_those_of_the_batch_when_a_shape_is_made() -> None:
    shape = shape_of((waiting(0, 3, reused_tokens=2), waiting(1, 4)))
    assert (shape.bs, shape.new_tokens, shape.reused_tokens) == (2, 7, 2)
    assert (shape.sum_new_squared, shape.sum_new_times_reused) == (25, 6)
