"""How many tokens a request may use at most: what limits count until it is known what it used.

A prompt has no more tokens than its body has bytes: a token is at least a byte of text, a token id in JSON at
least two. Only what a chat template adds by itself is not in the body.
"""

from __future__ import annotations

from pdmuxd.controlplane.tenants.records import Identity
from pdmuxd.daemon.gateway.limits.meter import Need
from pdmuxd.daemon.gateway.requests import EngineRequest

UNKNOWN_CONTEXT_TOKENS = 1 << 20
"""Of an engine that does not say how much its model's context holds: as many token ids as one request may
have (`data.max_prompt_tokens`)."""


def need_of(request: EngineRequest, *, body_bytes: int, context_tokens: int | None) -> Need:
    """What a request may use."""
    context_tokens = context_tokens or UNKNOWN_CONTEXT_TOKENS
    # SGLang computes a prompt once more before its choices, to have it in the cache.
    times = request.choices + 1 if request.choices > 1 else 1
    most = request.max_output_tokens
    return Need(
        places=request.outputs,
        input_tokens=min(body_bytes, context_tokens * request.outputs) * times,
        output_tokens=request.outputs * (context_tokens if most is None else min(most, context_tokens)),
    )


def most_output_tokens(identity: Identity) -> int | None:
    """The tokens that the tenant's and the key's limits allow one answer; None if they say nothing."""
    limits = (*identity.tenant.limits, *identity.key.limits)
    return min((limit.value for limit in limits if limit.name == "max_output_tokens"), default=None)
