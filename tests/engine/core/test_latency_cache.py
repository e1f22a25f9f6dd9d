from __future__ import annotations

from observations import waiting

from pdmuxd.engine.core.latency_cache import MAX_ENTRIES, LatencyCache


class Counted:
    """Tells the three numbers it was asked for apart, and remembers them."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, int, int]] = []

    def __call__(self, new_tokens: int, reused_tokens: int, sms: int) -> float:
        self.asked.append((new_tokens, reused_tokens, sms))
        return float(100 * new_tokens + 10 * reused_tokens + sms)


def test_each_question_is_computed_once_when_it_is_asked_again() -> None:
    cache, compute = LatencyCache(), Counted()
    for _ in range(2):
        assert cache.lookup(1, 2, 3, compute) == 123.0
        assert cache.lookup(2, 1, 3, compute) == 213.0
        assert cache.lookup(1, 2, 4, compute) == 124.0
    assert compute.asked == [(1, 2, 3), (2, 1, 3), (1, 2, 4)]


def test_a_latency_of_zero_is_kept_too() -> None:
    cache, asked = LatencyCache(), []
    for _ in range(2):
        assert cache.lookup(0, 0, 1, lambda *key: asked.append(key) or 0.0) == 0.0
    assert len(asked) == 1


def test_all_is_forgotten_when_it_is_full() -> None:
    cache, compute = LatencyCache(), Counted()
    for tokens in range(MAX_ENTRIES):
        cache.lookup(tokens, 0, 1, compute)
    cache.lookup(0, 0, 1, compute)
    assert len(compute.asked) == MAX_ENTRIES, "so many are kept"
    cache.lookup(MAX_ENTRIES, 0, 1, compute)
    cache.lookup(MAX_ENTRIES, 0, 1, compute)
    assert len(compute.asked) == MAX_ENTRIES + 1
    cache.lookup(0, 0, 1, compute)
    assert len(compute.asked) == MAX_ENTRIES + 2


def test_all_requests_of_a_window_are_looked_up_at_once() -> None:
    cache, compute = LatencyCache(), Counted()
    window = [waiting(1, 1, reused_tokens=2), waiting(2, 2, reused_tokens=1), waiting(3, 1, reused_tokens=2)]
    assert cache.lookup_all(window, 3, compute) == [123.0, 213.0, 123.0]
    assert cache.lookup_all(window[:2], 3, compute) == [123.0, 213.0]
    assert cache.lookup(2, 1, 3, compute) == 213.0
    assert compute.asked == [(1, 2, 3), (2, 1, 3)]
