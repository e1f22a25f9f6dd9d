"""The waiting requests as policies see them: a window over every tenant's line.

A window that showed the oldest of all would show one tenant alone as soon as that one sends enough.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from operator import itemgetter

from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.loop.requests import RefusalCause

DEPRIORITIZED_SHARE = 8
"""One part in so many of the window is kept for those whose deadline is unreachable."""

_Line = OrderedDict[str, tuple[int, WaitingRequest]]
"""By id, in the order of the numbers."""
_number = itemgetter(0)


class WaitingLines:
    """Requests that hold no KV, by tenant in arrival order; unreachable deadlines in a line of their own.

    An entry's `is_deprioritized` is what its line says, whatever it was added or updated with.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._deprioritized: _Line = OrderedDict()
        self._line_of: dict[str, _Line] = {}
        self._last = self._first = 0
        self._shown: tuple[int, tuple[WaitingRequest, ...]] | None = None
        """The size of the last window and what it showed, until something changes."""

    def __len__(self) -> int:
        return len(self._line_of)

    def get(self, request_id: str) -> WaitingRequest | None:
        """The entry of a request that waits."""
        line = self._line_of.get(request_id)
        return line[request_id][1] if line is not None else None

    def add(self, entry: WaitingRequest, *, first: bool = False) -> None:
        """Queue a request; one that was retracted goes first."""
        if first:
            self._first -= 1
            self._put(self._first, entry).move_to_end(entry.request_id, last=False)
        else:
            self._last += 1
            self._put(self._last, entry)

    def remove(self, request_id: str) -> None:
        """It does not wait any more. Raises: KeyError if it did not."""
        line = self._line_of.pop(request_id)
        _, entry = line.pop(request_id)
        if not line and line is not self._deprioritized:
            del self._lines[entry.tenant]
        self._shown = None

    def update(self, entry: WaitingRequest) -> None:
        """Show a waiting request anew, where it is. Raises: KeyError if it does not wait."""
        line = self._line_of[entry.request_id]
        entry = _marked(entry, is_deprioritized=line is self._deprioritized)
        line[entry.request_id] = line[entry.request_id][0], entry
        self._shown = None

    def deprioritize(self, request_id: str) -> None:
        """Show it behind all others from now on; nothing if it does not wait or is there already."""
        line = self._line_of.get(request_id)
        if line is None or line is self._deprioritized:
            return
        number, entry = line[request_id]
        self.remove(request_id)
        self._deprioritized[request_id] = number, _marked(entry, is_deprioritized=True)
        self._line_of[request_id] = self._deprioritized

    def restore(self, renewed: Callable[[WaitingRequest], WaitingRequest]) -> None:
        """Every entry as `renewed` makes it, and none deprioritized any more."""
        numbered = sorted((line[request_id] for request_id, line in self._line_of.items()), key=_number)
        self._lines.clear()
        self._deprioritized.clear()
        self._line_of.clear()
        for number, entry in numbered:
            self._put(number, renewed(entry))

    def expired(self, now_s: float) -> list[tuple[str, RefusalCause]]:
        """Who has waited for as long as it may, or is past its deadline where its tenant wants no late
        answer; oldest first within each line."""
        found: list[tuple[str, RefusalCause]] = []
        for line in (*self._lines.values(), self._deprioritized):
            for request_id, (_, entry) in line.items():
                if now_s > entry.expires_s:
                    found.append((request_id, RefusalCause.MAX_WAIT))
                elif entry.refuses_late and now_s > entry.deadline_s:
                    found.append((request_id, RefusalCause.DEADLINE_UNREACHABLE))
        return found

    def window(self, size: int) -> tuple[WaitingRequest, ...]:
        """At most `size`: each tenant's first ones in arrival order, as many of each as there is room for,
        and the oldest deprioritized ones behind, for which an eighth is kept."""
        if self._shown is not None and self._shown[0] == size:
            return self._shown[1]
        late = self._deprioritized
        room = size - min(len(late), size // DEPRIORITIZED_SHARE)
        shown = self._first_of_all(room)
        shown.extend(entry for _, entry in islice(late.values(), size - len(shown)))
        self._shown = size, tuple(shown)
        return self._shown[1]

    def _first_of_all(self, room: int) -> list[WaitingRequest]:
        lines = self._lines
        if len(lines) == 1:
            return [entry for line in lines.values() for _, entry in islice(line.values(), room)]
        chosen: list[tuple[int, WaitingRequest]] = []
        left = len(lines)
        for line in sorted(lines.values(), key=len):
            chosen.extend(islice(line.values(), (room - len(chosen)) // left))
            left -= 1
        chosen.sort(key=_number)
        return [entry for _, entry in chosen]

    def _put(self, number: int, entry: WaitingRequest) -> _Line:
        line = self._lines.setdefault(entry.tenant, OrderedDict())
        line[entry.request_id] = number, _marked(entry, is_deprioritized=False)
        self._line_of[entry.request_id] = line
        self._shown = None
        return line


def _marked(entry: WaitingRequest, *, is_deprioritized: bool) -> WaitingRequest:
    if entry.is_deprioritized is is_deprioritized:
        return entry
    return replace(entry, is_deprioritized=is_deprioritized)
