"""A second plugin for SGLang, beside pdmuxd's own: the model computes NaN for requests with certain ids, a
request with another is not made, and the grammar of a certain expression fails."""

from __future__ import annotations

from functools import wraps
from typing import Any

NAME = "pdmuxd_not_numbers"
FIRST, LATER = "nan-first", "nan-later"
"""What ids begin with: no first token, or none after some."""
LATER_TOKENS = 4
NOT_MADE = "not-made"
"""What the id of a request begins with for which SGLang's scheduler makes none."""
FAILING = "zz*"
"""A regular expression whose second tokens cannot be asked for."""


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

    from sglang.srt.constrained.xgrammar_backend import XGrammarGrammar
    from sglang.srt.managers.schedule_batch import Req

    make, fill = Req.__init__, XGrammarGrammar.fill_vocab_mask

    @wraps(make)  # whose source the plugin looks through
    def make_or_not(request: Any, rid: str, *given: Any, **named: Any) -> None:
        if rid.startswith(NOT_MADE):
            raise KeyError("a field that nobody knows")
        make(request, rid, *given, **named)

    def fill_or_fail(grammar: Any, mask: Any, row: int) -> None:
        if FAILING in (grammar.key_string or "") and grammar.accepted_tokens:
            raise RuntimeError("the matcher is lost")
        fill(grammar, mask, row)

    Req.__init__ = make_or_not
    XGrammarGrammar.fill_vocab_mask = fill_or_fail
