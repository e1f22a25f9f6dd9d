from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.tui.show.charts import AXIS_WIDTH, chart, meter, strip_chart
from pdmuxd.tui.show.lines import length
from pdmuxd.tui.show.roles import Role

SHARES = st.none() | st.tuples(st.floats(0, 1), st.floats(0, 1))


@given(columns=st.lists(SHARES, max_size=40), height=st.integers(1, 10), letters=st.booleans())
def test_the_chart_is_a_rectangle_when_shares_are_any(columns, height, letters):
    lines = strip_chart(columns, height, letters=letters)
    assert [length(one) for one in lines] == [len(columns)] * height


def test_prefill_is_below_decode_when_both_work():
    assert [one[0] for one in strip_chart([(0.5, 0.25)], 4, letters=True)] == [
        ("·", Role.IDLE_FILL),
        ("D", Role.DECODE_FILL),
        ("P", Role.PREFILL_FILL),
        ("P", Role.PREFILL_FILL),
    ]


def test_a_cell_is_partly_filled_when_there_is_colour():
    (top,), (bottom,) = strip_chart([(0.75, 0.25)], 2, letters=False)
    assert bottom == (" ", Role.PREFILL_FILL)
    assert top == ("▄", Role.PREFILL_ON_DECODE)


def test_nothing_is_drawn_when_nothing_is_known():
    assert strip_chart([None], 1, letters=False) == [((" ", Role.PLAIN),)]


@given(share=st.none() | st.floats(-1, 2), width=st.integers(1, 30))
def test_a_meter_is_as_wide_as_wanted_when_its_share_is_any(share, width):
    assert length(meter(share, width)) == width


def test_a_meter_shows_eighths_when_its_share_is_between_cells():
    assert meter(0.53125, 4) == (("██▏", Role.PLAIN), ("░", Role.DIM))


def test_a_chart_has_its_axis_and_a_line_where_the_target_is():
    lines = chart([1.0, 4.0, 12.0, None], 4, show=lambda value: f"{value:g}", target=8.0)
    shown = ["".join(text for text, _ in one) for one in lines]
    assert [one[:AXIS_WIDTH].strip(" ┤") for one in shown] == ["12", "8", "", "0"]
    assert shown[1][AXIS_WIDTH:] == "──█─"
    assert shown[3][AXIS_WIDTH:].endswith("╌")
    roles = dict(lines[0])
    assert roles["█"] is Role.BAD


def test_columns_are_bad_below_the_target_when_more_is_better():
    (line,) = chart([0.5, 0.99], 1, show=str, target=0.9, over_is_bad=False, least_top=1.0)
    assert [role for text, role in line[2:]] == [Role.BAD, Role.GOOD]
