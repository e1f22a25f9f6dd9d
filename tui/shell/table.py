"""A table with a cursor that stays on its row while rows come, go and change places."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Generic, TypeVar

from textual import events
from textual.binding import Binding, BindingType

from pdmuxd.tui.shell.csv_file import deliver_csv
from pdmuxd.tui.shell.painting import Painting
from pdmuxd.tui.show.lines import Cell, Column, Line, row
from pdmuxd.tui.show.table import Order, column_at, head, marked, moved, scrolled
from pdmuxd.tui.state.view import View

T = TypeVar("T")


def sort_bindings(columns: Sequence[Column]) -> list[BindingType]:
    """A key for each column that has one: it sorts by it, and again the other way round."""
    return [
        Binding(column.letter, f"sort_by('{column.key}')", f"Sort by {column.heading}", show=False)
        for column in columns
        if column.letter
    ]


def _text(cell: Cell) -> str:
    return "".join(text for text, _ in cell.runs)


class RowTable(Painting, Generic[T], can_focus=True):
    """Subclasses say which items there are and what a row of one is; only visible rows are made."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", "Up", show=False),
        Binding("down,j", "move(1)", "Down", show=False),
        Binding("pageup", "page(-1)", "A page up", show=False),
        Binding("pagedown", "page(1)", "A page down", show=False),
        Binding("home,g", "move(-1000000)", "First", show=False),
        Binding("end,G", "move(1000000)", "Last", show=False),
        Binding("enter", "open", "Open"),
        Binding("c", "copy", "Copy the row's id", show=False),
        Binding("C", "csv", "All rows as CSV", show=False),
        Binding(
            "less_than_sign", "sort_beside(-1)", "Sort by the column before", show=False, key_display="<"
        ),
        Binding(
            "greater_than_sign", "sort_beside(1)", "Sort by the next column", show=False, key_display=">"
        ),
        Binding("R", "reverse", "Sort the other way round", show=False),
    ]
    NAME: ClassVar[str] = "table"
    """Of the CSV file."""
    COLUMNS: ClassVar[Sequence[Column]] = ()

    def __init__(self, *, opened: Callable[[T], None] | None = None) -> None:
        """`opened` is called for Enter, or for a click on the row under the cursor."""
        super().__init__()
        self._opened = opened
        self.order = Order()
        self._items: Sequence[T] = ()
        self._chosen: str | None = None
        self._top = 0

    def columns(self, view: View) -> Sequence[Column]:
        """The columns. Subclasses override it if headings depend on what is shown."""
        return self.COLUMNS

    def kept(self, width: int) -> Sequence[int]:
        """The numbers of the columns that are shown at this width."""
        return range(len(self.COLUMNS))

    def items(self, view: View) -> Sequence[T]:
        """All rows' items, in `self.order`."""
        raise NotImplementedError

    def cells(self, item: T, view: View) -> Sequence[Cell]:
        raise NotImplementedError

    def key_of(self, item: T) -> str:
        """The key of a row, by which the cursor stays on it."""
        raise NotImplementedError

    def empty(self, view: View) -> str:
        """Why there is no row."""
        raise NotImplementedError

    def title(self, view: View, width: int) -> Line:
        """The line above the headings."""
        raise NotImplementedError

    def draw(self, view: View, width: int, height: int) -> list[Line]:
        """The title, the headings, the visible rows."""
        self._items = self.items(view)
        cursor = self._cursor()
        room = max(0, height - 2)
        self._top = scrolled(self._top, cursor, len(self._items), room)
        kept = self.kept(width)
        columns = [self.columns(view)[at] for at in kept]
        lines = [self.title(view, width), head(columns, width, self.order)]
        if not self._items:
            return [*lines, row([Cell(self.empty(view))], [Column("", 0)], width)]
        for number, item in enumerate(self._items[self._top : self._top + room], self._top):
            cells = self.cells(item, view)
            one = row([cells[at] for at in kept], columns, width)
            lines.append(marked(one) if number == cursor and self.has_focus else one)
        return lines

    @property
    def chosen(self) -> T | None:
        cursor = self._cursor()
        return self._items[cursor] if 0 <= cursor < len(self._items) else None

    def action_move(self, step: int) -> None:
        self._move_to(moved(self._cursor(), step, len(self._items)))

    def action_page(self, pages: int) -> None:
        self.action_move(pages * max(1, self.size.height - 2))

    def action_open(self) -> None:
        if self._opened is not None and self.chosen is not None:
            self._opened(self.chosen)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether a key does something here: without an action for rows, Enter has none."""
        return action != "open" or self._opened is not None

    def action_sort(self) -> None:
        """Go to the next order: each column both ways, then none."""
        self.order = self.order.next(self.COLUMNS)
        self.repaint()

    def action_sort_by(self, key: str) -> None:
        """Sort by that column; reverse the order if it is sorted by it already."""
        is_same = self.order.key == key
        self.order = Order(key=key, descending=not self.order.descending if is_same else True)
        self.repaint()

    def action_sort_beside(self, step: int) -> None:
        """The column before or after the one that is sorted by; none is one of them."""
        keys = ["", *(column.key for column in self.COLUMNS if column.key)]
        at = keys.index(self.order.key) if self.order.key in keys else 0
        self.order = Order(key=keys[(at + step) % len(keys)])
        self.repaint()

    def action_reverse(self) -> None:
        if self.order.key:
            self.action_sort_by(self.order.key)

    def action_copy(self) -> None:
        """The id of the row under the cursor, into the clipboard of whoever looks."""
        if self.chosen is not None:
            text = self.key_of(self.chosen)
            self.app.copy_to_clipboard(text)
            self.notify(text, title="Copied, if this terminal allows it", markup=False)

    def action_csv(self) -> None:
        """All rows: a file beside whoever runs the console, a download in a browser."""
        view = self._view
        if view is None:
            return
        rows = [[cell.text or _text(cell) for cell in self.cells(item, view)] for item in self.items(view)]
        deliver_csv(
            self.app, self.NAME, [column.heading for column in self.columns(view)], rows, view.daemon_now
        )

    def on_click(self, event: events.Click) -> None:
        """The first click puts the cursor on a row, the second opens it; one on a heading sorts by it."""
        if event.y == 1:
            columns = [self.COLUMNS[at] for at in self.kept(self.size.width)]
            found = column_at(columns, self.size.width, event.x)
            if found is not None and found.key:
                self.action_sort_by(found.key)
            return
        wanted = self._top + event.y - 2
        if event.y < 2 or not 0 <= wanted < len(self._items):
            return
        if self.has_focus and wanted == self._cursor():
            self.action_open()
        self._move_to(wanted)

    def on_mouse_scroll_down(self) -> None:
        """Move as the arrow keys do."""
        self.action_move(1)

    def on_mouse_scroll_up(self) -> None:
        """Move as the arrow keys do."""
        self.action_move(-1)

    def on_focus(self) -> None:
        self.repaint()

    def on_blur(self) -> None:
        self.repaint()

    def _cursor(self) -> int:
        """Where the chosen item is now; the first row if it has gone, or nothing was chosen."""
        if self._chosen is not None:
            for number, item in enumerate(self._items):
                if self.key_of(item) == self._chosen:
                    return number
        return 0 if self._items else -1

    def _move_to(self, cursor: int) -> None:
        # The first row is not held on to, so that a log stays at its newest.
        self._chosen = self.key_of(self._items[cursor]) if cursor > 0 else None
        self.repaint()
