"""What the console and the pages tell alike: tenants, the worst first; causes, decisions and SMs in words."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

LABELS = {"ttft": "TTFT", "tbt": "TBT", "availability": "availability", "e2e": "whole"}
TARGET_ALARMS = ("late_now", "ttft_burn", "tbt_burn", "availability_burn", "e2e_burn")
"""Kinds of alarms that tell of a tenant's targets."""

CAUSES = {
    "queued": "waits in the queue",
    "prefill_slow": "its own prefill is slow",
    "retracted": "sent back to wait for want of KV memory",
    "no_split_meets_target": "no split meets its TBT target at this load",
    "slower_than_predicted": "steps take longer than predicted",
    "answer_long": "its answer has many tokens, or they follow slowly",
    "prefill_between_tokens": "prefill runs alone between its tokens",
    "host_late": "the host is late with what the GPU has done",
    "loop_late": "the daemon reads requests late: it has too little of the CPU",
    "limited": "refused by its own limits",
    "refused": "refused by the node for want of a place or of an engine",
    "expired": "waited for as long as a request may, and was refused",
    "engine_lost": "the engine ended while it answered",
    "engine_silent": "the engine stood still",
    "failed": "the engine could not answer",
    "unknown": "not explained by what was seen",
}

REASONS = {
    "nothing_to_do": "nothing to do: no request prefills or decodes",
    "wait_for_prefill": "waits for the prefill in flight, since nothing decodes",
    "prefill_alone": "prefill has all SMs, since nothing decodes",
    "decode_alone": "decode has all SMs, since nothing waits to prefill",
    "fixed_split": "the fixed split that the policy was given",
    "decode_bs_rule": "the split follows the decode batch size alone",
    "token_budget": "one batch on all SMs, up to the policy's token budget",
    "best_fit": "the fewest decode SMs whose worst case meets the strictest TBT target",
    "fused_fits": "one batch on all SMs is predicted to meet the TBT target",
    "highest_throughput": "the split of highest predicted throughput that meets the TBT target",
    "prefill_first": "prefill goes before any decode",
    "hold_for_batch": "short prompts are held for a moment, to be prefilled together",
    "predictions_wrong": "predictions have been wrong of late, so a fixed plan takes over",
    "too_long_for_memory": "the prompt is prefilled in chunks, since memory does not hold it whole",
    "images_whole": "prompts whose images are prefilled whole, with nothing beside them",
    "tbt_infeasible": "no split meets the strictest TBT target; decode gets all it can",
    "switch_when_drained": "the split changes as soon as the work in flight is done",
    "preempt_when_drained": "a prefill is set aside as soon as its layers in flight are done",
    "preempted_for_shorter": "a shorter prompt overtook a longer one that can wait",
    "resumed": "the prefill that was set aside goes on",
    "prefill_finished": "a prefill that ran beside decode has passed its last layer",
}


def cause_in_words(cause: str) -> str:
    """A cause of misses; one that a newer daemon names stands for itself."""
    return CAUSES.get(cause, cause.replace("_", " "))


class Moved(Protocol):
    """A decision with what was learned that made it another one; None where it did not."""

    @property
    def mode(self) -> str | None: ...
    @property
    def prefill_ratio(self) -> float | None: ...
    @property
    def split_ratio(self) -> float | None: ...


def moved_by(why: Moved) -> str:
    """What was learned that made the decision another one; empty if nothing did."""
    parts = []
    if why.prefill_ratio is not None:
        other = "fused" if why.mode == "split" else "split"
        parts.append(f"would be {other} if layers did not take {why.prefill_ratio:.2f} × their prediction")
    if why.split_ratio is not None:
        parts.append(
            f"decode beside layers takes {why.split_ratio:.2f} × its prediction, so it has more SMs than its "
            "target needs and frees slots sooner"
        )
    return "; ".join(parts)


def sms_in_words(mode: str | None, prefill_sms: int | None, decode_sms: int | None) -> str:
    """What the SMs are divided into, while an engine says so."""
    if mode == "fused":
        return "one batch on all SMs"
    if mode == "decode":
        return "decode alone on all SMs"
    if mode == "idle":
        return "idle"
    return f"{prefill_sms} SMs prefill, {decode_sms} decode"


class Judged(Protocol):
    """A tenant of the event `tenants`; an older daemon does not say everything."""

    @property
    def tenant(self) -> str: ...
    @property
    def verdict(self) -> str | None: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def late_now(self) -> int: ...
    @property
    def target_ratio(self) -> float | None: ...
    @property
    def ttft_attainment_ratio(self) -> float | None: ...
    @property
    def tbt_attainment_ratio(self) -> float | None: ...
    @property
    def ttft_burn(self) -> float | None: ...
    @property
    def tbt_burn(self) -> float | None: ...
    @property
    def availability_burn(self) -> float | None: ...
    @property
    def availability_ratio(self) -> float | None: ...
    @property
    def e2e_burn(self) -> float | None: ...
    @property
    def e2e_attainment_ratio(self) -> float | None: ...
    @property
    def asked(self) -> int: ...
    @property
    def unserved(self) -> int: ...
    @property
    def limited(self) -> int: ...


_Load = TypeVar("_Load", bound=Judged)


def worst_first(loads: Iterable[_Load]) -> list[_Load]:
    """Sort those that miss before the others, the most late before them, then how fast the budget burns."""
    return sorted(
        loads,
        key=lambda one: (
            one.verdict != "missed",
            -one.late_now,
            -worst_burn(one),
            -one.in_flight,
            one.tenant,
        ),
    )


def worst_burn(load: Judged) -> float:
    """The burn over five minutes, of the worse target; 0 without traffic."""
    return max((burn or 0.0) for burn in _burns(load))


def targets_missed(load: Judged) -> list[str]:
    """`ttft`, `tbt`, `availability`, `e2e`: those whose budget burns faster than it lasts, and TTFT where
    requests are late now."""
    missed = []
    if (load.ttft_burn or 0.0) > 1.0 or load.late_now:
        missed.append("ttft")
    if (load.tbt_burn or 0.0) > 1.0:
        missed.append("tbt")
    if (load.availability_burn or 0.0) > 1.0:
        missed.append("availability")
    if (load.e2e_burn or 0.0) > 1.0:
        missed.append("e2e")
    return missed


def unserved_in_words(load: Judged) -> str:
    """How many requests of five minutes were not served, and how many by the tenant's own limits; empty if
    all were."""
    if not load.unserved:
        return ""
    of = f"{load.unserved} of {load.asked} requests were not served in 5 min"
    if not load.limited:
        return of
    return f"{of}, {'all' if load.limited == load.unserved else load.limited} by its own limits"


def met_ratio(load: Judged) -> float | None:
    """The share of five minutes that was kept, the late that wait counted as late; of the worst target."""
    if load.target_ratio is None:
        shares = (
            *(load.ttft_attainment_ratio, load.tbt_attainment_ratio),
            *(load.availability_ratio, load.e2e_attainment_ratio),
        )
        return min((share for share in shares if share is not None), default=None)
    burns = [burn for burn in _burns(load) if burn is not None]
    return max(0.0, 1.0 - max(burns) * (1.0 - load.target_ratio)) if burns else None


def _burns(load: Judged) -> tuple[float | None, ...]:
    return load.ttft_burn, load.tbt_burn, load.availability_burn, load.e2e_burn
