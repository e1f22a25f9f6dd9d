"""Targets of whole answers: when a first token is due for the rest to be in time, and how fast tokens follow.

An answer takes as many steps as it has tokens, and nobody knows how many those are; what its tenant's answers
usually have stands for it (answers.py). Steps may take as long as the TBT target, and half of that where the
answer would be late else. Source: slack of an answer from the expected length, JITServe (section 4).
"""

from __future__ import annotations

LEAST_PACE_SHARE = 0.5
"""Of a TBT target, the strictest that steps are planned for so that a whole answer is in time. Steps bound
the others' prefill as well; and who has twice this target can sit a step out (RELAXED_RATIO)."""
LONG_RATIO = 2.0
"""Times the usual length, the answer that the pace has time for: of lengths that scatter as those of chats
and summaries do, few are longer (docs/decisions/0053-whole-answers-by-pace.md)."""
_SHARES = (1.0, 0.84, 0.71, 0.59, LEAST_PACE_SHARE)
"""In even ratios: a decode batch with as many targets as requests would have to be looked at one by one."""


def first_token_due_s(*, ttft_target_s: float, e2e_target_s: float, tokens: float, tbt_s: float) -> float:
    """Seconds from arrival within which a first token is due: the TTFT target, or as soon as an answer of so
    many tokens needs at the strictest pace. The TTFT target also where no first token is soon enough."""
    due_s = e2e_target_s - tokens * LEAST_PACE_SHARE * tbt_s
    return min(ttft_target_s, due_s) if due_s > 0.0 else ttft_target_s


def pace_s(*, left_s: float, tokens: float, tbt_s: float) -> float:
    """The TBT target to plan steps for, with so much time left for an answer that usually has so many tokens.
    One that is late already has no use for a stricter one."""
    if left_s <= 0.0 or not tokens:
        return tbt_s
    needed = left_s / (LONG_RATIO * tokens) / tbt_s
    return tbt_s * next((share for share in _SHARES if share <= needed), LEAST_PACE_SHARE)
