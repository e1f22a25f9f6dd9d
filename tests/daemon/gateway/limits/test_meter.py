"""What one tenant or key has used, by day and month."""

from __future__ import annotations

from datetime import date

from pdmuxd.controlplane.tenants.token_use import Tokens
from pdmuxd.daemon.gateway.limits.meter import Meter, Need


def used(meter: Meter, name: str, today: date) -> int:
    return meter.used(name, count_cached=False, now_s=0.0, today=today)  # type: ignore[arg-type]


def tokens(count: int) -> Tokens:
    return Tokens(input_tokens=count, cached_tokens=1000, output_tokens=0)


def test_a_month_is_the_sum_of_its_days_in_whatever_order_they_come() -> None:
    meter = Meter("tenant chat")
    november, december = date(2026, 11, 30), date(2026, 12, 1)
    for count, day in (
        (1, november),
        (20, december),
        (2, november),
        (300, date(2026, 12, 2)),
        (40, december),
    ):
        meter.load(tokens(count), day)
    assert used(meter, "tokens_per_month", date(2026, 12, 2)) == 360
    assert used(meter, "tokens_per_day", december) == 60
    assert used(meter, "tokens_per_month", date(2027, 1, 1)) == 0
    meter.load(tokens(5), date(2027, 1, 3))
    assert used(meter, "tokens_per_month", date(2027, 1, 4)) == 5


def test_a_day_is_what_all_nodes_stored_when_it_is_corrected() -> None:
    meter = Meter("tenant chat")
    first, second = date(2026, 12, 1), date(2026, 12, 2)
    meter.load(tokens(100), first)
    meter.load(tokens(5), second)
    meter.correct(tokens(25), second)
    assert (used(meter, "tokens_per_day", second), used(meter, "tokens_per_month", second)) == (25, 125)
    meter.load(tokens(1), second)
    assert (used(meter, "tokens_per_day", second), used(meter, "tokens_per_month", second)) == (26, 126)


def test_what_is_reserved_counts_against_budgets_too() -> None:
    meter = Meter("tenant chat")
    today = date(2026, 12, 2)
    meter.take(
        Need(places=2, input_tokens=30, output_tokens=12), (), count_cached=False, now_s=0.0, today=today
    )
    assert (used(meter, "tokens_per_day", today), used(meter, "tokens_per_month", today)) == (42, 42)
    assert used(meter, "concurrency", today) == 2
    meter.release(places=2, input_tokens=30, output_tokens=12)
    assert used(meter, "tokens_per_day", today) == 0
