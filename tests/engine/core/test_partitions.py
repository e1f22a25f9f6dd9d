"""Invariant 1: SMs never exceed the device and every size is legal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.core.errors import PartitionError
from pdmuxd.engine.core.partitions import (
    Partition,
    PartitionTable,
    SmRules,
    aligned_decode,
    even_steps,
    with_split,
)

H200 = SmRules(total_sms=132)


def pair(prefill_sms: int, decode_sms: int) -> Partition:
    return Partition(prefill_sms=prefill_sms, decode_sms=decode_sms)


@given(total=st.integers(32, 256), step=st.integers(8, 64), splits=st.integers(1, 12))
def test_every_group_is_legal_when_made_in_even_steps(total: int, step: int, splits: int) -> None:
    rules = SmRules(total_sms=total)
    table = even_steps(rules, step_sms=step, max_splits=splits)
    assert table.groups[table.PREFILL_ONLY] == pair(total, 0)
    assert table.groups[table.decode_only] == pair(0, total)
    for index in table.split_indices:
        group = table.groups[index]
        assert group.prefill_sms + group.decode_sms <= total
        assert rules.is_legal(group.prefill_sms, group.decode_sms)


def test_six_splits_at_sixteen_sms_when_the_device_is_an_h200() -> None:
    pairs = [(s.prefill_sms, s.decode_sms) for s in even_steps(H200).splits]
    assert pairs == [(112, 20), (96, 36), (80, 52), (64, 68), (48, 84), (32, 100)]


@pytest.mark.parametrize(
    ("prefill_sms", "decode_sms", "legal"),
    [
        *((96, 36, True), (100, 32, True), (124, 8, True), (112, 20, True), (64, 68, True), (68, 64, True)),
        *((100, 30, False), (128, 4, False), (112, 24, False)),
        # SMs that idle: what is left of a split cannot be split again.
        *((96, 32, False), (112, 16, False)),
        # Too few are left for a matrix product.
        *((120, 12, False), (12, 120, False)),
    ],
)
def test_legality_of_a_pair_when_one_side_takes_the_rest(
    prefill_sms: int, decode_sms: int, legal: bool
) -> None:
    assert H200.is_legal(prefill_sms, decode_sms) is legal


def test_an_illegal_split_names_the_legal_ones_when_a_table_is_made() -> None:
    with pytest.raises(
        PartitionError,
        match=r"partition 100,30 is not possible on 132 SMs; allowed are 124,8, 116,16, 112,20, 108,24",
    ):
        PartitionTable(rules=H200, splits=(pair(100, 30),))


def test_decode_has_whole_groups_when_they_are_aligned_for_it() -> None:
    pairs = [(s.prefill_sms, s.decode_sms) for s in aligned_decode(H200).splits]
    assert pairs == [(124, 8), (116, 16), (108, 24), (100, 32), (92, 40), (84, 48), (68, 64), (52, 80)]


@given(total=st.integers(16, 256))
def test_every_aligned_split_is_legal_and_has_all_sms_when_made(total: int) -> None:
    rules = SmRules(total_sms=total)
    for split in aligned_decode(rules).splits:
        assert rules.is_legal(split.prefill_sms, split.decode_sms)
        assert split.prefill_sms + split.decode_sms == total
        assert split.decode_sms % rules.multiple_sms == 0


def test_every_pair_that_is_called_legal_is_legal() -> None:
    assert H200.legal_pairs()[0] == (112, 20)
    for total in range(16, 150):
        rules = SmRules(total_sms=total)
        assert all(rules.is_legal(p, d) and rules.is_legal(d, p) for p, d in rules.legal_pairs())


def test_splits_out_of_order_are_refused_when_a_table_is_made() -> None:
    with pytest.raises(PartitionError, match="growing decode SMs"):
        PartitionTable(rules=H200, splits=(pair(96, 36), pair(112, 20)))


def test_a_split_finds_its_place_when_it_is_added() -> None:
    table = with_split(even_steps(H200), 104, 28)
    assert [s.decode_sms for s in table.splits] == [20, 28, 36, 52, 68, 84, 100]
    assert table.index_of(104, 28) == 2
    assert with_split(table, 104, 28) is table


def test_known_groups_are_listed_when_an_index_is_asked_for_an_unknown_one() -> None:
    with pytest.raises(PartitionError, match="no partition group 8,124; there are 112,20"):
        even_steps(H200).index_of(8, 124)
