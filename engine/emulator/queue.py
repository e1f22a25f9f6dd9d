"""The waiting queue: arrival order, retracted requests first, with the entries that policies see."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from itertools import islice

from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.emulator.requests import EmulatedRequest

DEPRIORITIZED_SHARE = 8


class WaitingQueue:
    """Requests that hold no KV, in arrival order; unreachable deadlines in a line of their own."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, tuple[EmulatedRequest, WaitingRequest]] = OrderedDict()
        self._deprioritized: OrderedDict[str, tuple[EmulatedRequest, WaitingRequest]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items) + len(self._deprioritized)

    def add(self, request: EmulatedRequest, entry: WaitingRequest, *, first: bool = False) -> None:
        """Queue a request; a retracted one goes first."""
        self._items[request.request_id] = (request, entry)
        if first:
            self._items.move_to_end(request.request_id, last=False)

    def get(self, request_id: str) -> tuple[EmulatedRequest, WaitingRequest] | None:
        """The request and its entry, if it waits."""
        return self._items.get(request_id) or self._deprioritized.get(request_id)

    def remove(self, request_id: str) -> None:
        """Take a request out."""
        if self._items.pop(request_id, None) is None:
            del self._deprioritized[request_id]

    def deprioritize(self, request_ids: Iterable[str]) -> None:
        """Show these behind all others from now on."""
        for request_id in request_ids:
            item = self._items.pop(request_id, None)
            if item is not None:
                self._deprioritized[request_id] = item

    def update(self, entry: WaitingRequest) -> None:
        """Show a waiting request anew."""
        line = self._items if entry.request_id in self._items else self._deprioritized
        line[entry.request_id] = (line[entry.request_id][0], entry)

    def window(self, size: int) -> tuple[WaitingRequest, ...]:
        """The first entries; an eighth of the window is kept for the oldest deprioritized ones."""
        kept = min(len(self._deprioritized), size // DEPRIORITIZED_SHARE)
        shown = [entry for _, entry in islice(self._items.values(), size - kept)]
        shown.extend(entry for _, entry in islice(self._deprioritized.values(), size - len(shown)))
        return tuple(shown)

    def retarget(self) -> None:
        """Bring the entries up to date with their requests' targets; none is deprioritized any more."""
        everyone = [*self._deprioritized.items(), *self._items.items()]
        everyone.sort(key=lambda item: item[1][0].arrival_s)
        self._deprioritized.clear()
        self._items = OrderedDict((i, (r, retargeted(entry, r))) for i, (r, entry) in everyone)


def retargeted(entry: WaitingRequest, request: EmulatedRequest) -> WaitingRequest:
    """The entry with its request's present targets."""
    return replace(
        entry,
        deadline_s=request.arrival_s + request.ttft_target_s,
        tbt_target_s=request.tbt_target_s,
    )
