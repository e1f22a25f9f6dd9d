"""A split has one number as long as an engine runs."""

import pytest
from telemetry_feeds import heartbeat, step

from pdmuxd.daemon.supervisor.split_numbers import SplitNumbers

NAMED = ((132, 0), (96, 36), (72, 60), (0, 132))


@pytest.fixture
def numbers():
    return SplitNumbers(NAMED, 132)


def number(numbers, mode, prefill_sms, decode_sms, *, said):
    record = step(mode=mode, prefill_sms=prefill_sms, decode_sms=decode_sms, partition_id=said)
    return numbers.numbered(record).partition_id


@pytest.mark.parametrize(
    ("mode", "prefill_sms", "decode_sms", "said", "shown"),
    [
        ("split", 96, 36, 1, 1),
        ("split", 72, 60, 1, 2),
        ("split", 132, 0, 0, 0),
        ("fused", 132, 132, 2, 3),
        ("decode", 132, 132, 9, 3),
        ("split", 130, 0, 0, 0),
    ],
)
def test_it_is_that_of_the_sizes_whatever_the_policy_calls_them(
    numbers, mode, prefill_sms, decode_sms, said, shown
):
    assert number(numbers, mode, prefill_sms, decode_sms, said=said) == shown
    assert numbers.sizes == NAMED


def test_splits_that_came_while_serving_are_numbered_on(numbers):
    assert number(numbers, "split", 120, 12, said=1) == 4
    assert number(numbers, "split", 112, 20, said=1) == 5
    assert number(numbers, "split", 120, 12, said=2) == 4
    assert numbers.sizes == (*NAMED, (120, 12), (112, 20))


def test_a_heartbeat_has_the_same_number(numbers):
    stats = heartbeat(partition_id=1, prefill_sms=72, decode_sms=60)
    assert numbers.numbered(stats).partition_id == 2
    same = heartbeat(partition_id=1, prefill_sms=96, decode_sms=36)
    assert numbers.numbered(same) is same
