"""The load that a what-if assumes: the given figures, and for the others those of the last minutes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pdmuxd.controlplane.telemetry.recent import P50
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.observing import observation
from pdmuxd.engine.core.policies.base import AnyPolicy
from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.core.types import Decision, DecodeShape, Observation, PrefillShape, WaitingRequest
from pdmuxd.engine.link.messages import Hello

DEFAULT_DECODE_BS, DEFAULT_CONTEXT_TOKENS, DEFAULT_NEW_TOKENS = 8, 1024, 2048
"""Assumed before anything has run."""

_ASKED_AT_S = 1000.0
"""On the clock of the observation; any instant is as good."""

Source = Literal["request", "recent", "mixed", "default"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """A target, and the load that it is asked for; what is None is taken from the last minutes."""

    tbt_s: float
    decode_bs: int | None = None
    decode_context_tokens: int | None = None
    prefill_new_tokens: int | None = None
    prefill_reused_tokens: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """The load that an answer holds for: one prompt beside a decode batch."""

    decode_bs: int
    decode_context_tokens: int
    prefill_new_tokens: int
    prefill_reused_tokens: int
    source: Source

    def observed(self, tbt_s: float, policy: AnyPolicy, hello: Hello) -> Observation:
        """The observation as the policy would see it: decode has all SMs, and a prompt that is not pressed
        for time has come.

        The margin against switching back and forth plays no part then: it depends on the group in force.
        """
        prompt = WaitingRequest(
            request_id="what-if",
            tenant="",
            arrival_s=_ASKED_AT_S - 1.0,  # so that it need not wait for company
            deadline_s=_ASKED_AT_S + 1e6,
            new_tokens=self.prefill_new_tokens,
            reused_tokens=self.prefill_reused_tokens,
            tbt_target_s=tbt_s,
        )
        context = self.decode_context_tokens
        return observation(
            now_s=_ASKED_AT_S,
            partition_id=policy.table.decode_only,
            decode=DecodeShape(
                bs=self.decode_bs, reused_tokens=self.decode_bs * context, max_context_tokens=context
            ),
            tbt_target_s=tbt_s,
            last_token_s=_ASKED_AT_S,
            queue=(prompt,),
            queue_length=1,
            kv_free_tokens=10**9,
            limits=hello.limits,
            settings_version=hello.settings_version,
        )


def assume(wish: Wish, telemetry: Telemetry, share: float = P50) -> Assumed:
    """Fill in what was not given with this quantile of the last minutes: of each figure by itself."""
    samples = telemetry.recent.samples(telemetry.clock())
    decoded = [one for one in samples if one.decode_bs]
    prefilled = [one for one in samples if one.prefill_new_tokens]
    given = (wish.decode_bs, wish.decode_context_tokens, wish.prefill_new_tokens, wish.prefill_reused_tokens)
    source: Source = "recent" if samples else "default"
    if any(value is not None for value in given):
        source = "request" if None not in given[:3] else "mixed"
    context = nearest_rank((max(1, one.context_tokens) for one in decoded), share)
    new_tokens = nearest_rank((one.prefill_new_tokens for one in prefilled), share)
    reused = nearest_rank((one.prefill_reused_tokens for one in prefilled), share)
    decode_bs = nearest_rank((one.decode_bs for one in decoded), share)
    return Assumed(
        decode_bs=_first(wish.decode_bs, decode_bs, DEFAULT_DECODE_BS),
        decode_context_tokens=_first(wish.decode_context_tokens, context, DEFAULT_CONTEXT_TOKENS),
        prefill_new_tokens=_first(wish.prefill_new_tokens, new_tokens, DEFAULT_NEW_TOKENS),
        prefill_reused_tokens=_first(wish.prefill_reused_tokens, reused, 0),
        source=source,
    )


def _first(given: int | None, recent: float | None, otherwise: int) -> int:
    if given is not None:
        return given
    return int(recent) if recent is not None else otherwise


def duration_s(decision: Decision, load: Assumed, policy: AnyPolicy) -> float:
    """Predicted seconds of a batch; what a policy does not tell is the whole device's."""
    numbers, latency = decision.numbers, policy.context.latency
    if decision.mode.is_one_batch and numbers.predicted_fused_s:
        prompt_tokens = max(1, decision.token_budget - load.decode_bs)
        return numbers.predicted_fused_s * -(-load.prefill_new_tokens // prompt_tokens)
    if numbers.predicted_prefill_s is not None:
        prefill_sms = policy.table.groups[decision.partition_id].prefill_sms
        return numbers.predicted_prefill_s * latency.colocated_ratio(prefill_sms)
    shape = PrefillShape.of([(load.prefill_new_tokens, load.prefill_reused_tokens)])
    return latency.prefill_s(shape, policy.table.rules.total_sms)


def worst_gap_s(decision: Decision) -> float:
    """The longest gap between two tokens that the policy foresees; 0 where it foresees none."""
    numbers = decision.numbers
    if decision.mode.is_one_batch:
        return numbers.predicted_fused_s or 0.0
    if numbers.tbt_target_s is not None and numbers.tbt_slack_s is not None:
        return numbers.tbt_target_s - numbers.tbt_slack_s
    return numbers.predicted_decode_s or 0.0
