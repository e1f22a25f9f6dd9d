from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pdmuxd.tui.show.lines import (
    Cell,
    Column,
    clip,
    filled,
    fit,
    length,
    line,
    row,
    spread,
    title,
    widths,
    wrap,
)
from pdmuxd.tui.show.roles import Role

TEXTS = st.text(alphabet="ab ─█日", max_size=30)
LINES = st.lists(st.tuples(TEXTS, st.sampled_from(Role)), max_size=6).map(tuple)


@given(one=LINES, width=st.integers(0, 60))
def test_a_line_is_exactly_as_wide_as_wanted_when_it_is_fitted(one, width):
    assert length(fit(one, width)) == width


@given(text=TEXTS, width=st.integers(0, 40))
def test_text_is_never_wider_than_allowed_when_it_is_clipped(text, width):
    assert length(line(clip(text, width))) <= width


def test_an_ellipsis_says_so_when_something_is_cut_off():
    assert clip("attainment", 6) == "attai…"
    assert fit(line("ab", "cd"), 3) == (("ab", Role.PLAIN), ("…", Role.PLAIN))
    assert fit(line("ab", "cd"), 4) == line("ab", "cd")


def test_the_left_gives_way_when_two_ends_do_not_fit():
    assert spread(line("abcdef"), line("xy"), 6) == line("abc…", "xy")


def test_a_title_ends_at_the_edge_when_it_has_a_note():
    text = "".join(part for part, _ in title("Load", 20, "now"))
    assert text == "─ Load ─────── now ─"


def test_what_is_left_is_shared_when_columns_have_no_width():
    columns = (Column("a", 4), Column("b", 0), Column("c", 0))
    assert widths(columns, 26) == (4, 10, 10)


def test_figures_stand_at_the_right_when_a_row_is_set():
    columns = (Column("name", 0), Column("n", 4, "right"))
    assert "".join(text for text, _ in row([Cell("chat"), Cell("7")], columns, 12)) == "chat       7"


@given(text=TEXTS, width=st.integers(1, 20))
def test_no_line_is_too_wide_when_text_is_wrapped(text, width):
    assert all(length(one) <= width for one in wrap(text, width))


def test_there_are_as_many_lines_as_wanted_when_a_panel_is_filled():
    assert [length(one) for one in filled([line("a"), line("b")], 3, 4)] == [3, 3, 3, 3]
    assert filled([line("abc"), line("b")], 3, 1) == [line("abc")]
