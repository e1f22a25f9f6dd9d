"""How many prompt tokens a request will probably have, by what its tenant's earlier requests had.

Only the engine counts tokens, and it tells them when a request ends. Until then lateness and forecasts go by
the bytes of the body. No limit goes by this, since a tenant can teach it whatever it wants.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Container
from dataclasses import dataclass

from pdmuxd.engine.link.messages import RequestRecord

_TOKENS_PER_BYTE = 0.25
"""Of a tenant whose requests are not known yet: English text."""
_FORGET = 0.95
"""The weight of all earlier requests is multiplied by this with each new one."""
_KEPT_BODIES = 4096
"""Of requests that have not ended; with more in flight, nothing is learned of the oldest."""


@dataclass(slots=True)
class _Seen:
    prompt_bytes: float = 0.0
    new_tokens: float = 0.0


class ExpectedTokens:
    """Means per tenant, in which earlier requests fade. Written in one thread; may be asked in any."""

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}
        self._bodies: OrderedDict[str, float] = OrderedDict()

    def input_tokens(self, tenant: str, body_bytes: int) -> int:
        """Prompt tokens of a body of so many bytes that are not in the prefix cache; at least 1."""
        seen = self._seen.get(tenant)
        if seen is None or not seen.prompt_bytes:
            return max(1, round(_TOKENS_PER_BYTE * body_bytes))
        return max(1, round(seen.new_tokens / seen.prompt_bytes * body_bytes))

    def on_read(self, request_id: str, body_bytes: float) -> None:
        self._bodies[request_id] = body_bytes
        while len(self._bodies) > _KEPT_BODIES:
            self._bodies.popitem(last=False)

    def on_record(self, record: RequestRecord) -> None:
        body_bytes = self._bodies.pop(record.request_id, None)
        if body_bytes is None:
            # Several prompts of one request are numbered behind its id.
            body_bytes = self._bodies.get(record.request_id.rpartition("_")[0])
        if body_bytes is not None:
            self.learn(record.tenant, record.new_tokens, body_bytes)

    def learn(self, tenant: str, new_tokens: int, prompt_bytes: float) -> None:
        """A prompt of so many bytes had so many tokens that were not in the prefix cache."""
        seen = self._seen.setdefault(tenant, _Seen())
        seen.prompt_bytes = _FORGET * seen.prompt_bytes + prompt_bytes
        seen.new_tokens = _FORGET * seen.new_tokens + new_tokens

    def keep(self, tenants: Container[str]) -> None:
        """Forget what was learned of other tenants."""
        for gone in [name for name in self._seen if name not in tenants]:
            del self._seen[gone]
