"""Which kernel a product runs with on a partition: what is timed, kept and found again."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.engine.sglang.streams.gemm import (
    CUBLASLT,
    WHOLE_DEVICE,
    Gemm,
    GemmChoices,
    candidates,
    missing,
)

QKV, DOWN = (6144, 4096), (4096, 14336)
gemms = st.builds(
    lambda lt, target: Gemm(CUBLASLT, target) if lt else WHOLE_DEVICE,
    st.booleans(),
    st.none() | st.integers(1, 200),
)


@given(gemm=gemms)
def test_a_choice_is_read_as_it_is_named(gemm):
    assert Gemm.parse(gemm.name) == gemm


@pytest.mark.parametrize("name", ["", "cudnn", "cublas@112", "cublaslt@", "cublaslt@x"])
def test_a_name_that_is_no_choice_is_refused(name):
    with pytest.raises(ValueError, match=r"cublaslt|invalid literal"):
        Gemm.parse(name)


def test_what_is_left_of_a_split_is_told_of_fewer_sms():
    assert [gemm.name for gemm in candidates(112)] == ["cublas", "cublaslt", "cublaslt@112", "cublaslt@104"]
    assert [gemm.name for gemm in candidates(116)][2:] == [f"cublaslt@{sms}" for sms in (116, 112, 104, 100)]


@given(sms=st.integers(1, 200))
def test_every_target_is_of_the_partition_and_none_is_timed_twice(sms):
    found = candidates(sms)
    assert len(set(found)) == len(found)
    assert all(gemm.target_sms is None or 0 < gemm.target_sms <= sms for gemm in found)


def test_the_choice_is_that_of_the_rows_at_or_above():
    choices = GemmChoices()
    for rows, gemm in ((2048, Gemm(CUBLASLT, 112)), (64, Gemm(CUBLASLT)), (256, WHOLE_DEVICE)):
        choices.keep(112, QKV, rows, gemm)
    found = [choices.fastest(112, QKV, rows) for rows in (1, 64, 65, 256, 257, 2048, 9000)]
    lt, whole, exact = Gemm(CUBLASLT), WHOLE_DEVICE, Gemm(CUBLASLT, 112)
    assert found == [lt, lt, whole, whole, exact, exact, exact]


def test_nothing_is_chosen_for_what_was_not_timed():
    choices = GemmChoices()
    choices.keep(112, QKV, 64, Gemm(CUBLASLT))
    assert choices.fastest(96, QKV, 64) is None
    assert choices.fastest(112, DOWN, 64) is None


def test_a_later_choice_replaces_the_one_before():
    choices = GemmChoices()
    choices.keep(112, QKV, 64, Gemm(CUBLASLT))
    choices.keep(112, QKV, 64, Gemm(CUBLASLT, 104))
    assert choices.fastest(112, QKV, 64) == Gemm(CUBLASLT, 104)
    assert choices.count() == 1


@given(
    kept=st.lists(
        st.tuples(st.sampled_from((16, 112)), st.sampled_from((QKV, DOWN)), st.integers(1, 9), gemms)
    )
)
def test_choices_are_read_as_they_were_written(kept):
    choices = GemmChoices()
    for sms, shape, rows, gemm in kept:
        choices.keep(sms, shape, rows, gemm)
    again = GemmChoices.from_json(choices.to_json())
    for sms, shape, rows, _ in kept:
        assert again.fastest(sms, shape, rows) == choices.fastest(sms, shape, rows)
    assert again.to_json() == choices.to_json()


def test_only_what_was_not_timed_is_missing_and_each_point_once():
    choices = GemmChoices()
    choices.keep(64, QKV, 256, WHOLE_DEVICE)
    left = list(missing(choices, [(64, (128, 256)), (64, (256, 512))], [QKV, DOWN]))
    assert left == [
        (64, QKV, 128),
        (64, DOWN, 128),
        (64, DOWN, 256),
        (64, QKV, 512),
        (64, DOWN, 512),
    ]
