"""Many durations in few bytes."""

from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.link.durations import BUCKETS, bucket_of, counted, middle_s

DURATIONS_S = st.lists(st.floats(0.0, 2000.0), max_size=200)


@given(DURATIONS_S)
def test_every_duration_is_counted_once_when_many_are(durations_s):
    counts = counted(sorted(durations_s))
    assert sum(count for _, count in counts) == len(durations_s)
    assert all(0 <= bucket < BUCKETS and count > 0 for bucket, count in counts)


@given(DURATIONS_S)
def test_each_falls_into_the_bucket_that_it_has_alone_or_the_one_beside_it(durations_s):
    ordered_s = sorted(durations_s)
    together = [bucket for bucket, count in counted(ordered_s) for _ in range(count)]
    assert all(abs(bucket - bucket_of(s)) <= 1 for bucket, s in zip(together, ordered_s, strict=True))


@given(st.floats(1e-4, 900.0))
def test_the_middle_of_a_bucket_is_within_4_percent_when_it_stands_for_a_duration(seconds):
    assert abs(middle_s(bucket_of(seconds)) / seconds - 1.0) <= 0.0400001


def test_few_bytes_tell_of_many_when_they_are_alike():
    assert counted([0.02] * 10_000) == ((bucket_of(0.02), 10_000),)
    assert counted([]) == ()
