"""The verdict in words, on top."""

from __future__ import annotations

from pdmuxd.tui.show.lines import Line, wrap
from pdmuxd.tui.show.roles import Role
from pdmuxd.tui.show.verdict import verdict as judged
from pdmuxd.tui.state.view import View


def verdict(view: View, width: int, height: int) -> list[Line]:
    """Say who misses what and since when; the likely cause; what waits."""
    found = judged(view)
    lines: list[Line] = []
    for number, sentence in enumerate(filter(None, found.lines or (found.short,))):
        mark = f"{found.mark} " if not number else "  "
        role = found.role if not number else Role.PLAIN
        said = wrap(sentence, max(1, width - 2), role)
        lines += [((mark if not at else "  ", role), *one) for at, one in enumerate(said)]
    return lines
