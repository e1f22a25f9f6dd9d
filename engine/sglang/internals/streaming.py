"""SGLang's output streamer, whose tokens can be held back for a moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from pdmuxd.engine.sglang.api.types.requests import Request
from pdmuxd.engine.sglang.api.types.scheduler import OutputStreamer


class HoldingStreamer:
    """Stands in for SGLang's output streamer where results of batches are processed."""

    def __init__(self, streamer: OutputStreamer) -> None:
        self._streamer = streamer
        self._holds = False
        self._held: list[tuple[list[Request], tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._streamer, name)

    def stream_output(self, requests: Sequence[Request], *args: Any, **kwargs: Any) -> None:
        """Send the new tokens of these requests, or note that they are to be sent later."""
        if self._holds:
            self._held.append((list(requests), args, kwargs))
        else:
            self._streamer.stream_output(requests, *args, **kwargs)

    @contextmanager
    def holding(self, hold: bool) -> Iterator[None]:
        """Send nothing inside the block, if `hold`."""
        self._holds = hold
        try:
            yield
        finally:
            self._holds = False

    def release(self) -> None:
        held, self._held = self._held, []
        for requests, args, kwargs in held:
            self._streamer.stream_output(requests, *args, **kwargs)
