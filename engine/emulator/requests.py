"""A request inside the emulated engine: what it asked for and how far it has come."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from pdmuxd.engine.core.slo import RequestTargets
from pdmuxd.engine.loop.requests import RefusalCause


class Phase(StrEnum):
    """Where a request is. It ends in exactly one of the last four (invariant 5)."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DECODE = "decode"
    FINISHED = "finished"
    ABORTED = "aborted"
    FAILED = "failed"
    REFUSED = "refused"


ENDED = frozenset({Phase.FINISHED, Phase.ABORTED, Phase.FAILED, Phase.REFUSED})


@dataclass(slots=True, kw_only=True)
class EmulatedRequest:
    """One request; the engine owns and mutates it, everyone else reads.

    `block_keys` identify the prompt's blocks of `block_tokens` tokens (the last may be partial): equal
    keys in equal positions share KV, as in a radix tree. `output_tokens` is exact: the engine
    produces just so many, unless the request is aborted.
    """

    request_id: str
    tenant: str
    arrival_s: float
    input_tokens: int
    output_tokens: int
    block_keys: Sequence[int] = ()
    answer_keys: Sequence[int] = ()
    """Keys of the full blocks that the answer fills, the one that the prompt left partial first: a later
    prompt which repeats both finds them in the cache, as on SGLang."""
    own_targets: RequestTargets | None = None
    """In place of its tenant's."""

    phase: Phase = Phase.WAITING
    reused_tokens: int = 0
    """Prompt tokens found in the prefix cache at the first admission."""
    ttft_target_s: float = 0.0
    tbt_target_s: float = 0.0
    """Its gaps are judged by it."""
    planned_tbt_s: float = 0.0
    """Steps are planned for it: the same, or a laxer one."""
    e2e_target_s: float | None = None
    """From its arrival to its last token; None: no target."""
    slo_version: int = 0
    prefill_start_s: float | None = None
    first_token_s: float | None = None
    end_s: float | None = None
    produced_tokens: int = 0
    retractions: int = 0
    segments: list[tuple[float | None, int, int]] = field(default_factory=list)
    """Runs of tokens: (time of the run's first token, None while that is on the device; first decode step
    index; step index past the last, -1 while it decodes)."""
    delivered_s: array[float] | None = None
    """When its tokens got to the client; None if each does the moment that its step is read."""
    failure: str | None = None
    refusal_cause: RefusalCause | None = None
    """Why it was REFUSED."""
