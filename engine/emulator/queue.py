"""The waiting queue: arrival order, retracted requests first, with the entries that policies see."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from itertools import islice

from pdmuxd.engine.core.types import WaitingRequest
from pdmuxd.engine.emulator.requests import EmulatedRequest


class WaitingQueue:
    """Requests that hold no KV."""

    def __init__(self) -> None:
        self._items: OrderedDict[str, tuple[EmulatedRequest, WaitingRequest]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._items)

    def add(self, request: EmulatedRequest, entry: WaitingRequest, *, first: bool = False) -> None:
        """Queue a request; a retracted one goes first."""
        self._items[request.request_id] = (request, entry)
        if first:
            self._items.move_to_end(request.request_id, last=False)

    def get(self, request_id: str) -> tuple[EmulatedRequest, WaitingRequest] | None:
        """The request and its entry, if it waits."""
        return self._items.get(request_id)

    def remove(self, request_id: str) -> None:
        """Take a request out."""
        del self._items[request_id]

    def window(self, size: int) -> tuple[WaitingRequest, ...]:
        """The first entries."""
        return tuple(entry for _, entry in islice(self._items.values(), size))

    def retarget(self) -> None:
        """Bring the entries up to date with their requests' targets."""
        for request_id, (request, entry) in self._items.items():
            self._items[request_id] = (request, retargeted(entry, request))


def retargeted(entry: WaitingRequest, request: EmulatedRequest) -> WaitingRequest:
    """The entry with its request's present targets."""
    return replace(
        entry,
        deadline_s=request.arrival_s + request.ttft_target_s,
        tbt_target_s=request.tbt_target_s,
    )
