"""Says who is told of each request that goes through the gateway."""

from __future__ import annotations

from typing import Protocol

from pdmuxd.controlplane.telemetry.judged import Delivered
from pdmuxd.engine.core.slo import RequestTargets


class CallObserver(Protocol):
    """Is told in the event loop; must neither block nor raise."""

    def on_begin(self, request_id: str, *, tenant: str, path: str, key_id: str = "") -> None:
        """A request was let in."""

    def on_targets(self, request_id: str, targets: RequestTargets) -> None:
        """The request has targets of its own, in place of its tenant's."""

    def on_read(
        self, request_id: str, *, is_streamed: bool, body_bytes: int, read_s: float, answers: int = 1
    ) -> None:
        """The body of the request has arrived, which took `read_s`, less than 0 if it lay there unread
        before; it makes so many answers."""

    def on_prompt(self, request_id: str, *, prompt_bytes: int, prefixes: tuple[int, ...]) -> None:
        """The leading parts of its prompt, by name. Told only if parts are named."""

    def on_sent(self, request_id: str) -> None:
        """The request goes to the engine."""

    def on_first_byte(self, request_id: str) -> None:
        """The engine's answer began to arrive."""

    def on_answered(
        self, request_id: str, *, status: int, delivered: Delivered | None, end: str = "", error: str = ""
    ) -> None:
        """A request that was let in is over; `status` is 499 if its client left first.

        `delivered` is of a streamed answer with one choice, `end` why the answer ended early, and `error` the
        code of the error that the client got instead; both are empty if there was nothing of the kind.
        """

    def on_refused(
        self, tenant: str, cause: str, *, request_id: str = "", path: str = "", status: int = 503
    ) -> None:
        """A request was not served for want of a place or of an engine; `cause` is the code of its error. If
        it had been let in, `on_answered` has been told of it."""


class NobodyWatches:
    """The observer of a gateway without a daemon."""

    def on_begin(self, request_id: str, *, tenant: str, path: str, key_id: str = "") -> None:
        """Do nothing."""

    def on_targets(self, request_id: str, targets: RequestTargets) -> None:
        """Do nothing."""

    def on_read(
        self, request_id: str, *, is_streamed: bool, body_bytes: int, read_s: float, answers: int = 1
    ) -> None:
        """Do nothing."""

    def on_prompt(self, request_id: str, *, prompt_bytes: int, prefixes: tuple[int, ...]) -> None:
        """Do nothing."""

    def on_sent(self, request_id: str) -> None:
        """Do nothing."""

    def on_first_byte(self, request_id: str) -> None:
        """Do nothing."""

    def on_answered(
        self, request_id: str, *, status: int, delivered: Delivered | None, end: str = "", error: str = ""
    ) -> None:
        """Do nothing."""

    def on_refused(
        self, tenant: str, cause: str, *, request_id: str = "", path: str = "", status: int = 503
    ) -> None:
        """Do nothing."""
