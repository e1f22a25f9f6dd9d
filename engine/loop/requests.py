"""What the loop needs to know of requests. Each device keeps them in its own way: SGLang's objects are looked
at, the emulated engine's cost constant time per step whatever the batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pdmuxd.engine.core.slo import DEFAULT_SLO, Slo
from pdmuxd.engine.core.types import WaitingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A tenant's objectives and the version of the edit that set them."""

    slo: Slo
    version: int


DEFAULT_TARGET = Target(slo=DEFAULT_SLO, version=0)


class RequestBook(Protocol):
    """Requests from their arrival to their one end (invariant 5); `requests` are the device's own objects."""

    prompt_tokens: int
    """Of requests that got their first token; like the next three, since the start."""
    reused_prompt_tokens: int
    """Of these, found in the prefix cache."""
    output_tokens: int
    retractions: int

    def __len__(self) -> int:
        """Requests that have not ended."""

    def awaiting_first_token(self) -> Iterator[tuple[str, float, float]]:
        """Tenant, arrival and TTFT target of each request that has no token yet."""

    def watch(self, waiting: Any, now_s: float) -> None:
        """Compare the waiting queue with the last one seen."""

    def entry(self, request: Any) -> WaitingRequest | None:
        """How a request looks to a policy, or looked when it was admitted."""

    def window(self, waiting: Any, size: int) -> tuple[WaitingRequest, ...]:
        """The first entries in arrival order, the deprioritized behind; an eighth is kept for these."""

    def deprioritize(self, request_ids: Iterable[str]) -> None:
        """Show these behind all others from now on."""

    def admitted(self, request_ids: Iterable[str], now_s: float) -> tuple[WaitingRequest, ...]:
        """These hold KV from now on; their entries as admitted."""

    def without_new(self, request_ids: Iterable[str]) -> tuple[str, ...]:
        """Those that may look different since they were last looked up in the prefix cache."""

    def look_up(self, request_ids: Iterable[str]) -> bool:
        """Look these up in the prefix cache again; whether that changed how any of them looks."""

    def retarget(self, targets: Mapping[str, Target]) -> None:
        """Put changed targets in force for every request that has not ended."""

    def tbt_target_s(self, decoding: Any, joining: Sequence[Any] = ()) -> float | None:
        """The strictest target of those that decode and are about to; None if there are none."""

    def give_step(self, requests: Any, now_s: float) -> None:
        """A decode or fused step of these was read."""

    def give_tokens(self, requests: Iterable[Any], now_s: float) -> object:
        """These have got tokens otherwise, or have ended."""
