"""Several answers of one request as one: a batch of prompts is one request of its tenant, not several."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import msgspec

from pdmuxd.engine.link.messages import RequestRecord


def parent_of(request_id: str) -> str:
    """The request that an answer belongs to: engines number the answers of a batch behind its id."""
    return request_id.rpartition("_")[0]


def together(request_id: str, records: Sequence[RequestRecord]) -> RequestRecord:
    """The record of a request of several answers: tokens and gaps of all, the rest of the worst of them."""
    worst = max(records, key=_lateness)
    gaps: Counter[int] = Counter()
    for record in records:
        for bucket, count in record.tbt_counts:
            gaps[bucket] += count
    return msgspec.structs.replace(
        worst,
        request_id=request_id,
        new_tokens=sum(each.new_tokens for each in records),
        reused_tokens=sum(each.reused_tokens for each in records),
        output_tokens=sum(each.output_tokens for each in records),
        tbt_max_s=max((each.tbt_max_s for each in records if each.tbt_max_s is not None), default=None),
        tbt_p99_s=max((each.tbt_p99_s for each in records if each.tbt_p99_s is not None), default=None),
        tbt_gaps=sum(each.tbt_gaps for each in records),
        tbt_gaps_met=sum(each.tbt_gaps_met for each in records),
        retractions=sum(each.retractions for each in records),
        tbt_counts=tuple(sorted(gaps.items())),
        decode_s=sum(each.decode_s for each in records),
        e2e_s=max((each.e2e_s for each in records if each.e2e_s is not None), default=None),
    )


def _lateness(record: RequestRecord) -> tuple[bool, float]:
    """One that did not finish is worse than any that did; among these the one that was later."""
    late_s = math.inf if record.ttft_s is None else record.ttft_s - record.ttft_target_s
    return record.outcome != "finished", late_s
