"""Whether SGLang can prefill a model by layers, so that its answers stay what they are."""

from __future__ import annotations

from collections.abc import Mapping

_WRONG: Mapping[str, str] = {
    # gemma3_causal.py:829-844 of 0.5.23 keeps a layer's first output alone; the second is the residual.
    "Gemma3ForCausalLM": "SGLang's own split of it drops the residual and gives wrong tokens",
    # nanbeige.py:500 of 0.5.23.
    "NanbeigeForCausalLM": "SGLang's own split of it is an assertion that fails",
}
"""Classes whose `forward_split_prefill` is there and must not be used."""


def why_unsplit(model: object) -> str:
    """The reason in words; empty if it can be split."""
    if not hasattr(model, "forward_split_prefill"):
        return f"SGLang has no layer-wise prefill for {type(model).__name__}"
    for part in type(model).__mro__:
        if part.__name__ in _WRONG:
            return f"{part.__name__}: {_WRONG[part.__name__]}"
    return ""
