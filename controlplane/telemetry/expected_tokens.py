"""How many tokens a request will probably have, by what its tenant's earlier requests had.

Only the engine counts tokens, and it tells them when a request ends. Until then limits, lateness and
forecasts go by the bytes of the body.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from pdmuxd.controlplane.tenants.token_use import Tokens

_TOKENS_PER_BYTE = 0.25
"""Of a tenant whose requests are not known yet: English text."""
_OUTPUT_TOKENS = 128.0
_FORGET = 0.95
"""The weight of all earlier requests is multiplied by this with each new one."""


@dataclass(slots=True)
class _Seen:
    prompt_bytes: float = 0.0
    computed: float = 0.0
    cached: float = 0.0
    outputs: float = 0.0
    answers: float = 0.0


class ExpectedTokens:
    """Means per tenant, in which earlier requests fade. Written in one thread; may be asked in any."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def input_tokens(self, tenant: str, body_bytes: int, *, count_cached: bool) -> int:
        """Prompt tokens of a body of so many bytes; at least 1."""
        seen = self._seen.get(tenant)
        if seen is None or not seen.prompt_bytes:
            return max(1, round(_TOKENS_PER_BYTE * body_bytes))
        tokens = seen.computed + (seen.cached if count_cached else 0.0)
        return max(1, round(tokens / seen.prompt_bytes * body_bytes))

    def output_tokens(self, tenant: str, answers: int) -> int:
        """Tokens of so many answers; at least 1 each."""
        seen = self._seen.get(tenant)
        mean = _OUTPUT_TOKENS if seen is None or not seen.answers else seen.outputs / seen.answers
        return max(answers, round(mean * answers))

    def learn(self, tenant: str, tokens: Tokens, prompt_bytes: float) -> None:
        """One answer has ended; its part of the body had so many bytes."""
        seen = self._seen.setdefault(tenant, _Seen())
        seen.prompt_bytes = _FORGET * seen.prompt_bytes + prompt_bytes
        seen.computed = _FORGET * seen.computed + tokens.input_tokens
        seen.cached = _FORGET * seen.cached + tokens.cached_tokens
        seen.outputs = _FORGET * seen.outputs + tokens.output_tokens
        seen.answers = _FORGET * seen.answers + 1

    def keep(self, tenants: Container[str]) -> None:
        """Forget what was learned of other tenants."""
        for gone in [name for name in self._seen if name not in tenants]:
            del self._seen[gone]
