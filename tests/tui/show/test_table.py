"""Rows under the cursor, and which columns a table has room for."""

from __future__ import annotations

import pytest

from pdmuxd.tui.show.lines import line
from pdmuxd.tui.show.overview.tenants import BY_ROOM, COLUMNS
from pdmuxd.tui.show.palette import PALETTES
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.table import NAME_ROOM, fitting, marked
from pdmuxd.tui.show.tenants import rows


def test_what_is_bad_stays_so_when_the_cursor_is_on_it() -> None:
    one = marked(line(("chat", Role.BAD), ("7.2", Role.WARN), "rest"))
    assert [role for _, role in one] == [Role.CURSOR_BAD, Role.CURSOR_WARN, Role.CURSOR]
    for palette in PALETTES.values():
        paints = [palette.paints[role] for _, role in one]
        assert len(set(paints)) == 3


@pytest.mark.parametrize(("columns", "by_room"), [(COLUMNS, BY_ROOM), (rows.COLUMNS, rows.BY_ROOM)])
def test_a_wider_table_has_all_columns_of_a_narrower_one(columns, by_room) -> None:
    before: set[int] = set()
    for width in range(40, 220):
        kept = fitting(columns, by_room, width)
        assert before <= set(kept)
        before = set(kept)
        if len(kept) > len(columns) - len(by_room):
            assert sum(columns[at].width for at in kept) + len(kept) - 1 + NAME_ROOM <= width
    assert before == set(range(len(columns)))
