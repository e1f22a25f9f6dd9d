"""A second plugin for SGLang, beside pdmuxd's own: the scheduler dies when it has computed a certain prompt.

It raises where a batch is sampled, which names no request, so that nothing but the quarantine ends it.
"""

from __future__ import annotations

from typing import Any

NAME = "pdmuxd_poison"
TOKEN = 511
POISON = [TOKEN] * 16
"""A prompt; the other requests of a batch that decodes have a token each."""
REASON = "the poison was computed"


def register() -> None:
    """Called by SGLang in each of its processes."""
    from sglang.srt.model_executor.model_runner import ModelRunner

    sample = ModelRunner.sample

    def sample_or_die(runner: Any, logits_output: Any, forward_batch: Any) -> Any:
        if int((forward_batch.input_ids == TOKEN).sum()) >= len(POISON):
            raise RuntimeError(REASON)
        return sample(runner, logits_output, forward_batch)

    ModelRunner.sample = sample_or_die
