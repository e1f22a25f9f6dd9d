from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.tui.show.lines import length
from pdmuxd.tui.show.sm_bar import Cells, SmUse, bar, cells


def use(**changes):
    given = {
        "total_sms": 132,
        "prefill_sms": 84,
        "decode_sms": 48,
        "prefill_ratio": 0.5,
        "decode_ratio": 0.25,
    }
    return SmUse(**(given | changes))


@given(
    width=st.integers(0, 250),
    prefill=st.integers(0, 132),
    prefill_ratio=st.floats(0, 1.2),
    decode_ratio=st.floats(0, 1.2),
    is_fused=st.booleans(),
    letters=st.booleans(),
)
def test_the_parts_add_up_when_the_bar_has_any_width(
    width, prefill, prefill_ratio, decode_ratio, is_fused, letters
):
    some = use(
        prefill_sms=prefill,
        decode_sms=132 - prefill,
        prefill_ratio=prefill_ratio,
        decode_ratio=decode_ratio,
        is_fused=is_fused,
    )
    parts = cells(some, width)
    values = (parts.prefill, parts.prefill_idle, parts.boundary, parts.decode_idle, parts.decode)
    assert sum(values) == width
    assert min(values) >= 0
    assert length(bar(some, width, letters=letters)) == width


def test_each_side_fills_its_own_partition_when_the_gpu_is_split():
    # 133 cells and a boundary: one per SM. Half of all SMs are 66 of prefill's 84.
    assert cells(use(), 133) == Cells(prefill=66, prefill_idle=18, boundary=1, decode_idle=15, decode=33)


def test_both_share_all_sms_when_a_batch_is_fused():
    assert cells(use(is_fused=True), 100) == Cells(
        prefill=50, prefill_idle=25, boundary=0, decode_idle=0, decode=25
    )


def test_little_work_is_seen_when_its_share_is_less_than_a_cell():
    assert cells(use(decode_ratio=0.005), 40).decode == 1
    assert cells(use(decode_ratio=0.0), 40).decode == 0


def test_letters_say_what_is_what_when_there_is_no_colour():
    assert "".join(part for part, _ in bar(use(), 17, letters=True)) == "PPPPPPPP··│··DDDD"


def test_names_are_written_when_parts_are_wide_enough():
    text = "".join(part for part, _ in bar(use(), 60, letters=False))
    assert "prefill" in text
    assert "decode" in text
