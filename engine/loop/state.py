"""What the loop carries from one safe point to the next, of which there is one."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field


class DeniedOvertaking:
    """The request that was to go ahead of a prompt in chunks, and was not taken by the engine.

    An engine may want more room than a policy reckons with: SGLang keeps KV for what each request may still
    answer. A policy that sees them would let the prompt wait for them in vain, step after step.
    """

    def __init__(self) -> None:
        self._request_ids: frozenset[str] = frozenset()
        self._kv_free_tokens = 0

    def note(self, request_ids: frozenset[str], kv_free_tokens: int) -> None:
        """None of these was taken, with so much room."""
        self._request_ids, self._kv_free_tokens = request_ids, kv_free_tokens

    def held(self, kv_free_tokens: int, *, is_chunked: bool) -> Collection[str]:
        """The requests `hidden` would name now. Nothing is changed: what reports may ask on one rank only."""
        return self._request_ids if is_chunked and kv_free_tokens <= self._kv_free_tokens else ()

    def hidden(self, kv_free_tokens: int, *, is_chunked: bool) -> Collection[str]:
        """Requests not to show: these, until KV was given back or no prompt is in chunks."""
        if self.held(kv_free_tokens, is_chunked=is_chunked):
            self._kv_free_tokens = kv_free_tokens
        else:
            self._request_ids = frozenset()
        return self._request_ids


@dataclass(slots=True, kw_only=True)
class LoopState:
    """Owned by the loop; its parts change it as plans are carried out and results are read."""

    policy_state: object
    """The policy's memory, which nobody else reads. A decision's comes in force when it is carried out, once
    (`PolicyRuntime.commit`), and what a step has taught when it was read (`PolicyRuntime.learn`)."""
    partition_id: int
    """Index into the policy's table of the group in force."""
    last_token_s: float = 0.0
    """When the decode batch last got tokens, or the fused step was launched that it begins with."""
    denied: DeniedOvertaking = field(default_factory=DeniedOvertaking)
