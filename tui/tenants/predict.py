"""What the live predictors say of another target, next to what they say of the one that holds."""

from __future__ import annotations

from pdmuxd.tui.client.answers import WhatIf
from pdmuxd.tui.client.rest import Refusal, RestClient
from pdmuxd.tui.state.answers import known


async def predict(
    rest: RestClient, tbt_ms: float, *, holds_ms: float
) -> tuple[WhatIf | Refusal, WhatIf | None]:
    """Both for the same load, which changes from one second to the next; None where they are one target."""
    answer = await rest.call("POST", "/what-if", WhatIf, body={"tbt_ms": tbt_ms})
    if isinstance(answer, Refusal) or tbt_ms == holds_ms:
        return answer, None
    load = answer.assumed
    body = {
        "tbt_ms": holds_ms,
        "decode_bs": load.decode_bs,
        "decode_context_tokens": load.decode_context_tokens,
        "prefill_new_tokens": load.prefill_new_tokens,
        "prefill_reused_tokens": load.prefill_reused_tokens,
    }
    return answer, known(await rest.call("POST", "/what-if", WhatIf, body=body))
