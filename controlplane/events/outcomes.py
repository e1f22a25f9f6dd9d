"""How a request ended, in one word: every request that a tenant sent has exactly one.

Availability is the share of requests that were served, of all but those that their clients gave up or that
no server could have answered.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pdmuxd.engine.link.messages import RequestRecord


class Outcome(StrEnum):
    """How a request ended."""

    FINISHED = "finished"
    ABORTED = "aborted"
    """Its client left."""
    INVALID = "invalid"
    """Its client sent what cannot be answered (4xx)."""
    LIMITED = "limited"
    """Refused (429) by a limit of its tenant or of its key."""
    REFUSED = "refused"
    """Refused (429, 503) for want of a place on the node or of an engine, or since it could only be late."""
    EXPIRED = "expired"
    """It waited for as long as a request may (`max_wait`, the time for a first byte)."""
    LOST = "lost"
    """The engine or the daemon ended while it was answered."""
    FAILED = "failed"
    """The engine or the daemon could not answer it."""


OutcomeWord = Literal["finished", "aborted", "invalid", "limited", "refused", "expired", "lost", "failed"]
"""The same as it is told."""
UNSERVED = frozenset({Outcome.LIMITED, Outcome.REFUSED, Outcome.EXPIRED, Outcome.LOST, Outcome.FAILED})
"""What counts against availability; `finished` counts for it, the others not at all."""
ASKED = UNSERVED | {Outcome.FINISHED}

CLIENT_LEFT, ENGINE_LOST, SHUTDOWN, TOO_LATE, DEFECT = (
    *("client_disconnected", "engine_lost", "shutdown", "first_byte_timeout", "defect"),
)
"""Why the gateway ended an answer early: the words of its `End`, and of `pdmuxd_gateway_aborts_total`."""
_BY_END = {
    CLIENT_LEFT: Outcome.ABORTED,
    ENGINE_LOST: Outcome.LOST,
    SHUTDOWN: Outcome.LOST,
    TOO_LATE: Outcome.EXPIRED,
    DEFECT: Outcome.FAILED,
}
_BY_STATUS = {499: Outcome.ABORTED, 502: Outcome.LOST, 503: Outcome.REFUSED, 504: Outcome.EXPIRED}
_EXPIRED_CODES = frozenset({"max_wait", TOO_LATE})
_NODE_LIMIT = "node_limit"
_BY_RECORD = {"finished": Outcome.FINISHED, "aborted": Outcome.ABORTED, "failed": Outcome.FAILED}


def outcome_at_gateway(status: int, *, end: str = "", error: str = "") -> Outcome | None:
    """What the gateway's word on an answer makes of it; None: it passed the engine's answer on whole, and
    only the engine's record tells how that ended.

    `end` is why the gateway ended the answer early, empty if it did not; `error` the code of the error that
    it answered with.
    """
    if end in _BY_END:
        return _BY_END[end]
    if status < 400:
        return None
    if error in _EXPIRED_CODES:
        return Outcome.EXPIRED
    if status == 429:
        return Outcome.REFUSED if error == _NODE_LIMIT else Outcome.LIMITED
    return _BY_STATUS.get(status, Outcome.FAILED if status >= 500 else Outcome.INVALID)


def outcome_of_record(record: RequestRecord) -> Outcome:
    """What the engine's word makes of a request."""
    if record.outcome == "refused":
        return Outcome.EXPIRED if record.cause in _EXPIRED_CODES else Outcome.REFUSED
    return _BY_RECORD.get(record.outcome, Outcome.FAILED)
