"""A second plugin for SGLang, beside pdmuxd's own: the model computes NaN for requests with a certain id."""

from __future__ import annotations

from typing import Any

NAME = "pdmuxd_not_numbers"
FIRST, LATER = "nan-first", "nan-later"
"""What ids begin with: no first token, or none after some."""
LATER_TOKENS = 4


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.model_executor.model_runner import ModelRunner

    sample = ModelRunner.sample
    sampled: dict[str, int] = {}

    def sample_not_numbers(runner: Any, logits_output: Any, forward_batch: Any) -> Any:
        for row, rid in enumerate(forward_batch.rids or ()):
            sampled[rid] = sampled.get(rid, 0) + 1
            if rid.startswith(FIRST) or (rid.startswith(LATER) and sampled[rid] > LATER_TOKENS):
                logits_output.next_token_logits[row] = float("nan")
        return sample(runner, logits_output, forward_batch)

    ModelRunner.sample = sample_not_numbers
