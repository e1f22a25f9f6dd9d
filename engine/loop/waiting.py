"""The waiting requests as policies see them: a window over every tenant's line.

A window that showed the oldest of all would show one tenant alone as soon as that one sends enough. Of a
tenant that has more than its part of the window, half of that part is shown by deadline: its own short
requests would wait unseen behind its long ones.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from operator import itemgetter

from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.loop.requests import RefusalCause

DEPRIORITIZED_SHARE = 8
"""One part in so many of the window is kept for those whose deadline is unreachable."""

_number = itemgetter(0)


class _Line(OrderedDict[str, tuple[int, WaitingRequest]]):
    """Requests by id, in the order of their numbers; and the same by deadline."""

    def __init__(self) -> None:
        super().__init__()
        self._due: list[tuple[float, int, str]] = []

    def put(self, number: int, entry: WaitingRequest) -> None:
        """Add a request, or show it anew under its number."""
        if entry.request_id in self:
            self._forget(*self[entry.request_id])
        self[entry.request_id] = number, entry
        insort(self._due, (entry.deadline_s, number, entry.request_id))

    def take(self, request_id: str) -> tuple[int, WaitingRequest]:
        """Remove a request. Raises: KeyError if it is not in the line."""
        number, entry = self.pop(request_id)
        self._forget(number, entry)
        return number, entry

    def first(self, room: int) -> list[tuple[int, WaitingRequest]]:
        """Take at most `room`: the oldest, and where there are more, for half of the room those due first."""
        if len(self) <= room:
            return list(self.values())
        oldest = list(islice(self.values(), room - room // 2))
        last = oldest[-1][0] if oldest else -math.inf
        due = (self[name] for _, number, name in self._due if number > last)
        return [*oldest, *islice(due, room // 2)]

    def _forget(self, number: int, entry: WaitingRequest) -> None:
        del self._due[bisect_left(self._due, (entry.deadline_s, number, entry.request_id))]


class WaitingLines:
    """Requests that hold no KV, by tenant in arrival order; unreachable deadlines in a line of their own.

    An entry's `is_deprioritized` is what its line says, whatever it was added or updated with.
    """

    def __init__(self) -> None:
        self._lines: dict[str, _Line] = {}
        self._deprioritized = _Line()
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
        """Take it out. Raises: KeyError if it did not wait."""
        line = self._line_of.pop(request_id)
        _, entry = line.take(request_id)
        if not line and line is not self._deprioritized:
            del self._lines[entry.tenant]
        self._shown = None

    def update(self, entry: WaitingRequest) -> None:
        """Show a waiting request anew, where it is. Raises: KeyError if it does not wait."""
        line = self._line_of[entry.request_id]
        entry = _marked(entry, is_deprioritized=line is self._deprioritized)
        line.put(line[entry.request_id][0], entry)
        self._shown = None

    def deprioritize(self, request_id: str) -> None:
        """Show it behind all others from now on; nothing if it does not wait or is there already."""
        line = self._line_of.get(request_id)
        if line is None or line is self._deprioritized:
            return
        number, entry = line[request_id]
        self.remove(request_id)
        self._deprioritized.put(number, _marked(entry, is_deprioritized=True))
        self._line_of[request_id] = self._deprioritized

    def restore(self, renewed: Callable[[WaitingRequest], WaitingRequest]) -> None:
        """Every entry as `renewed` makes it, and none deprioritized any more."""
        numbered = sorted((line[request_id] for request_id, line in self._line_of.items()), key=_number)
        self._lines.clear()
        self._deprioritized = _Line()
        self._line_of.clear()
        for number, entry in numbered:
            self._put(number, renewed(entry))

    def expired(self, now_s: float) -> list[tuple[str, RefusalCause]]:
        """Requests that have waited for as long as they may, or are past their deadlines where tenants want
        no late answer; oldest first within each line."""
        found: list[tuple[str, RefusalCause]] = []
        for line in (*self._lines.values(), self._deprioritized):
            for request_id, (_, entry) in line.items():
                if now_s > entry.expires_s:
                    found.append((request_id, RefusalCause.MAX_WAIT))
                elif entry.refuses_late and now_s > (entry.ttft_deadline_s or entry.deadline_s):
                    found.append((request_id, RefusalCause.DEADLINE_UNREACHABLE))
        return found

    def window(self, size: int) -> tuple[WaitingRequest, ...]:
        """Show at most `size`: of each tenant as many as there is room for, its oldest and those due first,
        all in arrival order, and the oldest deprioritized ones behind, for which an eighth is kept."""
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
        chosen: list[tuple[int, WaitingRequest]] = []
        left = len(lines)
        for line in sorted(lines.values(), key=len):
            chosen.extend(line.first((room - len(chosen)) // left))
            left -= 1
        chosen.sort(key=_number)
        return [entry for _, entry in chosen]

    def _put(self, number: int, entry: WaitingRequest) -> _Line:
        line = self._lines.setdefault(entry.tenant, _Line())
        line.put(number, _marked(entry, is_deprioritized=False))
        self._line_of[entry.request_id] = line
        self._shown = None
        return line


def _marked(entry: WaitingRequest, *, is_deprioritized: bool) -> WaitingRequest:
    if entry.is_deprioritized is is_deprioritized:
        return entry
    return replace(entry, is_deprioritized=is_deprioritized)
