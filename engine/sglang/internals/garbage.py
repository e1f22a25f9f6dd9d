"""Holds the garbage collector of SGLang's processes, once each is ready to serve.

SGLang freezes what there is at that moment, in one process after the other; ours follows each time. A user's
`--gc-threshold` stays in force.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from pdmuxd.engine.link.garbage import GarbageHolder, report_path
from pdmuxd.engine.sglang.api.types.process import DetokenizerManager, FreezeRequest, TokenizerManager


def thresholds_stay(request: FreezeRequest) -> bool:
    """Whether a user has chosen thresholds; SGLang 0.5.22 does not tell all of its processes."""
    return bool(getattr(request, "gc_threshold", None))


class ProcessGarbage:
    """The holder of this process, made when SGLang freezes."""

    def __init__(self, link: str | None) -> None:
        self._link = link
        self._holder: GarbageHolder | None = None

    def collected_s(self) -> float:
        """Seconds of this process's collections since SGLang has frozen it; 0 until then."""
        return 0.0 if self._holder is None else self._holder.collected_s

    async def http_frozen(self, original: Callable[..., Awaitable[None]], manager: TokenizerManager) -> None:
        """Wraps `TokenizerManager.freeze_gc`."""
        await original(manager)
        self.hold(
            "http",
            is_idle=lambda: not manager.rid_to_state,
            keeps_thresholds=bool(manager.server_args.gc_threshold),
        )

    def detokenizer_frozen(self, _: object, manager: DetokenizerManager, request: FreezeRequest) -> None:
        """Runs after `DetokenizerManager.handle_freeze_gc_req`."""
        self.hold(
            "detokenizer",
            is_idle=lambda: not manager.decode_status,
            keeps_thresholds=thresholds_stay(request),
        )

    def hold(self, process: str, *, is_idle: Callable[[], bool], keeps_thresholds: bool) -> None:
        if self._holder is None:
            path = None if self._link is None else report_path(self._link, process)
            self._holder = GarbageHolder(process, is_idle=is_idle, path=path)
        self._holder.hold(keeps_thresholds=keeps_thresholds)
