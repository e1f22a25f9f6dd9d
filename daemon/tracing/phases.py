"""Queue, prefill and decode of an answer, from the engine's record of it, as spans' times and attributes.

The record has durations, not instants: an answer that finished did so when its record came, and began that
much earlier, but not before it was sent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pdmuxd.controlplane.telemetry.judged import ttft_missed
from pdmuxd.daemon.tracing import attributes as names
from pdmuxd.engine.link.messages import RequestRecord

Value = str | bool | int | float


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One span; instants are of the monotonic clock."""

    name: str
    begin_s: float
    end_s: float
    attributes: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One answer in the engine."""

    record: RequestRecord
    arrived_s: float
    ended_s: float

    @classmethod
    def of(cls, record: RequestRecord, *, sent_s: float, received_s: float) -> Answer:
        """Where it lies in time. A finished one ended when its record came, others were sent before."""
        arrived_s = sent_s
        if record.outcome == "finished" and record.ttft_s is not None:
            arrived_s = max(sent_s, received_s - record.ttft_s - record.decode_s)
        return cls(record=record, arrived_s=arrived_s, ended_s=max(received_s, sent_s))


def phases_of(answer: Answer) -> Iterator[Phase]:
    """Queue, and prefill and decode as far as it came."""
    record, ended_s = answer.record, answer.ended_s

    def until(after_s: float | None) -> float:
        """An instant so long after the arrival, or the end if it did not come to that."""
        return ended_s if after_s is None else min(ended_s, answer.arrived_s + after_s)

    started_s, first_token_s = until(record.queue_s), until(record.ttft_s)
    yield Phase(
        name="queue",
        begin_s=answer.arrived_s,
        end_s=started_s,
        attributes={
            names.OUTCOME: record.outcome,
            **({names.REFUSAL: record.cause} if record.cause else {}),
            **({names.RETRACTIONS: record.retractions} if record.retractions else {}),
        },
    )
    if record.queue_s is None:
        return
    yield Phase(
        name="prefill",
        begin_s=started_s,
        end_s=first_token_s,
        attributes={
            names.INPUT_TOKENS: record.new_tokens + record.reused_tokens,
            names.CACHED_TOKENS: record.reused_tokens,
            names.TTFT_TARGET: record.ttft_target_s,
        },
    )
    if record.ttft_s is None:
        return
    yield Phase(
        name="decode",
        begin_s=first_token_s,
        end_s=until(record.ttft_s + record.decode_s),
        attributes={
            names.OUTPUT_TOKENS: record.output_tokens,
            names.TBT_TARGET: record.tbt_target_s,
            names.GAPS_MISSED: record.tbt_gaps - record.tbt_gaps_met,
            **({} if record.tbt_max_s is None else {names.TBT_MAX: record.tbt_max_s}),
            **_time_per_output_token([answer]),
        },
    )


def totals_of(answers: Sequence[Answer]) -> Mapping[str, Value]:
    """What the gateway's span says of all answers."""
    records = [answer.record for answer in answers]
    ttfts_s = [record.ttft_s for record in records if record.ttft_s is not None]
    missed = [late for late in map(ttft_missed, records) if late is not None]
    return {
        names.INPUT_TOKENS: sum(record.new_tokens + record.reused_tokens for record in records),
        names.CACHED_TOKENS: sum(record.reused_tokens for record in records),
        names.OUTPUT_TOKENS: sum(record.output_tokens for record in records),
        **({names.TIME_TO_FIRST_TOKEN: min(ttfts_s)} if ttfts_s else {}),
        **({names.TTFT_MET: not any(missed)} if missed else {}),
        **_time_per_output_token(answers),
    }


def _time_per_output_token(answers: Sequence[Answer]) -> Mapping[str, Value]:
    """The mean after the first token, as the conventions define it."""
    records = [answer.record for answer in answers]
    gaps = sum(record.tbt_gaps for record in records)
    if not gaps:
        return {}
    return {names.TIME_PER_OUTPUT_TOKEN: sum(record.decode_s for record in records) / gaps}
