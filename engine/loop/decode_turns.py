"""Knows whose turn it is to decode, where the batch has several TBT targets: when each was last in a step."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pdmuxd.engine.core.types import DecodingRequest
from pdmuxd.engine.loop.port import EngineState
from pdmuxd.engine.loop.requests import RequestBook

_NOBODY: frozenset[str] = frozenset()


class DecodeTurns:
    """Takes turns on rank 0, whose clock counts; the others are told which requests sit out."""

    def __init__(self, state: EngineState, ledger: RequestBook) -> None:
        self._state = state
        self._ledger = ledger
        self._last_s: dict[str, float] = {}
        """By request; empty while there is one target."""
        self._in_flight = _NOBODY
        """Who is in the step launched last."""
        self._just_read = _NOBODY
        """Who was in the step before it, which was read a moment ago."""

    def decoding(
        self, now_s: float, last_token_s: float, joining: Sequence[tuple[str, int]] = ()
    ) -> tuple[DecodingRequest, ...]:
        """The batch, if it has several TBT targets and can be divided; else nothing.

        Who is in the step in flight counts as having its token now: the step that is decided about begins
        with the end of that one. `last_token_s`: of a batch that was not looked at before, since all were in
        all steps. `joining`: ids and context tokens of requests that join before the next step.
        """
        state, ledger = self._state, self._ledger
        if not joining and not ledger.has_several_tbt_targets(state.running):
            self._forget()
            return ()
        batch = [*state.decode_contexts(), *joining]
        targets_s = ledger.tbt_targets_s(name for name, _ in batch)
        if len(frozenset(targets_s).difference({None})) < 2:
            self._forget()
            return ()
        before, unseen_s = self._last_s, now_s if self._last_s else last_token_s
        fresh = self._in_flight | self._just_read
        found = [
            DecodingRequest(name, target_s, context, now_s if name in fresh else before.get(name, unseen_s))
            for (name, context), target_s in zip(batch, targets_s, strict=True)
            if target_s is not None
        ]
        self._last_s = {request.request_id: request.last_token_s for request in found}
        return tuple(found)

    def launched(self, sits_out: Collection[str]) -> None:
        """A step begins without these."""
        if self._last_s:
            self._just_read, self._in_flight = self._in_flight, frozenset(self._last_s).difference(sits_out)

    def _forget(self) -> None:
        self._last_s = {}
        self._in_flight = self._just_read = _NOBODY
