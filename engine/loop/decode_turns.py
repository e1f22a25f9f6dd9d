"""Whose turn it is to decode, where the batch has several TBT targets: when each was last in a step."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pdmuxd.engine.core.types import DecodingRequest
from pdmuxd.engine.loop.port import EngineState
from pdmuxd.engine.loop.requests import RequestBook


class DecodeTurns:
    """Of rank 0, whose clock counts; the others are told who sits out."""

    def __init__(self, state: EngineState, ledger: RequestBook) -> None:
        self._state = state
        self._ledger = ledger
        self._last_s: dict[str, float] = {}
        """When each request was last in a step, or joined the batch; empty while there is one target."""
        self._in_flight: frozenset[str] = frozenset()
        self._just_read: frozenset[str] = frozenset()

    def decoding(
        self, now_s: float, last_token_s: float, joining: Sequence[tuple[str, int]] = ()
    ) -> tuple[DecodingRequest, ...]:
        """The batch, if it has several TBT targets.

        `last_token_s`: of requests that nobody noted, since all decoded in all steps. `joining`: ids and context
        tokens of requests that join before the next step.
        """
        state, ledger = self._state, self._ledger
        if not joining and not ledger.has_several_tbt_targets(state.running):
            self._last_s = {}
            return ()
        batch = [*state.decode_contexts(), *joining]
        targets_s = ledger.tbt_targets_s([name for name, _ in batch])
        if len(set(targets_s)) < 2:
            self._last_s = {}
            return ()
        known, unknown_s = self._last_s, now_s if self._last_s else last_token_s
        fresh = self._in_flight | self._just_read
        self._last_s = {name: now_s if name in fresh else known.get(name, unknown_s) for name, _ in batch}
        return tuple(
            DecodingRequest(name, target_s, context, last_s)
            for (name, context), target_s, last_s in zip(
                batch, targets_s, self._last_s.values(), strict=True
            )
        )

    def launched(self, sits_out: Collection[str], now_s: float) -> None:
        """A step begins without these."""
        if self._last_s:
            self._just_read, self._in_flight = self._in_flight, frozenset(self._last_s).difference(sits_out)
        else:
            self._just_read = self._in_flight = frozenset()
