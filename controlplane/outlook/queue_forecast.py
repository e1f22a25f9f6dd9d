"""What targets would have given in the last minutes: the requests that came, served as the policy would now.

A batch queue: whenever the prefill is free it takes what waits, up to a full batch, for as long as the policy
in force predicts under the strictest TBT target of those that decode at that moment. So waiting behind
others counts, and so does what a stricter target costs everybody. Who has a first token decodes for as long
as it did; while nobody does, because all wait, a prefill has the whole device. It is a forecast, not a
replay: what it says of the targets in force stands beside what was measured.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

from pdmuxd.controlplane.outlook.assumed_load import Assumed, duration_s, worst_gap_s
from pdmuxd.controlplane.outlook.queue_parts import Decoding, Gate
from pdmuxd.controlplane.outlook.what_if import Questions
from pdmuxd.controlplane.telemetry.delivery_delays import Delay, delay_of
from pdmuxd.controlplane.telemetry.recent import P50, EndedRequest, LoadSample
from pdmuxd.engine.core.policies.fusedsteps import LARGE_CHUNK_TOKENS
from pdmuxd.engine.core.quantiles import nearest_rank
from pdmuxd.engine.core.slo import Slo
from pdmuxd.engine.core.types import DecodeShape, PrefillShape

MOST_REQUESTS = 1000
"""Of the last minutes, the newest."""
MOST_MOMENTS = 100
PER_OCTAVE = 3
"""Loads are asked about in steps of 26%, so that few questions answer for all."""
P99 = 0.99
PROMPTS = 4
"""That stand for all in the gaps beside them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The decode batch at one instant, and whose requests were in it."""

    at_s: float
    decode_bs: int
    context_tokens: int
    tenants: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantForecast:
    """What a tenant's requests would have got; None where there was nothing to judge."""

    requests: int
    ttft_p50_s: float | None
    ttft_p99_s: float | None
    ttft_attainment_ratio: float | None
    tbt_attainment_ratio: float | None
    """At worst: each gap beside a prefill counts as long as the policy's bound on it."""
    ttft_used: tuple[float, ...] = ()
    """Times to first token by their targets, sorted: 1 is just in time."""
    ttft_between: tuple[float, float] | None = None
    """The share if all times were longer, and if they were shorter, by what forecasts of times are off."""
    tbt_between: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecasts what one set of targets gives."""

    tenants: Mapping[str, TenantForecast]
    prefill_s: float
    """For which prefill was busy."""
    time_s: float
    """From the first arrival to the last first token."""
    requests: int
    binding: Mapping[str, float]
    """Tenants whose TBT target was the strictest among those that decoded, with their share of the time."""

    @property
    def prefill_busy_ratio(self) -> float:
        """The share of the time; 1 is all that there is."""
        return self.busy_ratio_of(self.prefill_s)

    def busy_ratio_of(self, prefill_s: float) -> float:
        """What so many seconds of prefill are of the time; more than there was is 1."""
        return min(1.0, prefill_s / self.time_s) if self.time_s > 0.0 else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Recent:
    """The last minutes, ready to be asked about."""

    requests: tuple[EndedRequest, ...]
    """In the order of arrival."""
    moments: tuple[Moment, ...]

    @classmethod
    def of(cls, requests: Sequence[EndedRequest], samples: Sequence[LoadSample]) -> Recent:
        """The newest requests, and moments spread evenly over the samples that decoded."""
        newest = sorted(requests, key=_arrived_s)[-MOST_REQUESTS:]
        decoded = [one for one in samples if one.decode_bs]
        every = max(1, -(-len(decoded) // MOST_MOMENTS))
        taken = decoded[::-1][::every][::-1]
        instants = [one.at_s for one in taken]
        tenants: list[set[str]] = [set() for _ in taken]
        for request in newest:
            if request.ttft_s is None:
                continue
            first = bisect_right(instants, request.arrived_s + request.ttft_s)
            for index in range(first, bisect_right(instants, request.ended_s)):
                tenants[index].add(request.tenant)
        moments = tuple(
            Moment(
                at_s=one.at_s,
                decode_bs=one.decode_bs,
                context_tokens=max(1, one.context_tokens),
                tenants=frozenset(names),
            )
            for one, names in zip(taken, tenants, strict=True)
        )
        return cls(requests=tuple(newest), moments=moments)


def forecast(
    recent: Recent,
    targets: Mapping[str, Slo],
    questions: Questions,
    delays: dict[str, Delay] | None = None,
    concurrency: Mapping[str, int] | None = None,
    *,
    judged_by: Mapping[str, Slo] | None = None,
    by_deadline: bool | None = None,
) -> Forecast:
    """What `targets` would have given; requests of tenants that have none are served and not judged.

    `delays` is what delivery adds to the device, by tenant; without it tokens come as they are made.
    `concurrency`: of these tenants the gateway lets so many in at a time, and the others wait there.
    `judged_by`: other targets, which serve nobody and by which all are judged.
    `by_deadline`: whether requests go by their deadlines; None: as the policy in force has it.
    """
    delays = {} if delays is None else delays
    judged_by = targets if judged_by is None else judged_by
    device = _Device(recent, targets, questions, delays)
    if by_deadline is None:
        by_deadline = device.goes_by_deadline
    ttft_s, prefill_s, time_s = _served(
        recent.requests, targets, device, concurrency or {}, by_deadline=by_deadline
    )
    by_tenant: dict[str, list[tuple[float, int]]] = {}
    for request, first_s in zip(recent.requests, ttft_s, strict=True):
        by_tenant.setdefault(request.tenant, []).append((first_s, request.new_tokens))
    made = Forecast(
        tenants={},
        prefill_s=prefill_s,
        time_s=time_s,
        requests=len(recent.requests),
        binding=device.binding(),
    )
    tbt = device.tbt_attainment(made.prefill_busy_ratio, judged_by)
    found = {
        name: _tenant(times, judged_by[name], tbt.get(name), delay_of(delays, name))
        for name, times in by_tenant.items()
        if name in targets
    }
    return replace(made, tenants=found)


def is_kept(found: TenantForecast | None, slo: Slo) -> bool | None:
    """Whether a forecast keeps the share that is promised; None where there was nothing to judge."""
    if found is None:
        return None
    shares = [one for one in (found.ttft_attainment_ratio, found.tbt_attainment_ratio) if one is not None]
    return min(shares) >= slo.attainment_ratio if shares else None


def _tenant(times: Sequence[tuple[float, int]], slo: Slo, tbt: float | None, delay: Delay) -> TenantForecast:
    met = sum(delay.ttft_met(slo.ttft_target_s(new_tokens) - first_s) for first_s, new_tokens in times)
    usual_s = delay.ttft_within_s(P50)
    return TenantForecast(
        requests=len(times),
        ttft_p50_s=(nearest_rank((first_s for first_s, _ in times), P50) or 0.0) + usual_s,
        ttft_p99_s=(nearest_rank((first_s for first_s, _ in times), P99) or 0.0) + usual_s,
        ttft_attainment_ratio=met / len(times),
        tbt_attainment_ratio=tbt,
        ttft_used=tuple(sorted((first_s + usual_s) / slo.ttft_target_s(tokens) for first_s, tokens in times)),
    )


def _served(
    requests: Sequence[EndedRequest],
    targets: Mapping[str, Slo],
    device: _Device,
    concurrency: Mapping[str, int],
    *,
    by_deadline: bool,
) -> tuple[list[float], float, float]:
    """Seconds until the first token of each request, for which prefill was busy, and until all was done.

    Who is in time goes first, by deadline, and overtakes a batch that can wait, as `auto` does it; other
    policies keep the order of arrival.
    """
    ttft_s, waiting, coming = [math.inf] * len(requests), list[int](), 0
    deadlines_s = [
        one.arrived_s + targets[one.tenant].ttft_target_s(one.new_tokens)
        if one.tenant in targets
        else math.inf
        for one in requests
    ]
    free_s = requests[0].arrived_s if requests else 0.0
    start_s, busy_s, gate, decoding = free_s, 0.0, Gate(requests, concurrency), Decoding(requests)
    while coming < len(requests) or waiting or gate.holds:
        if not waiting:
            coming_s = requests[coming].arrived_s if coming < len(requests) else math.inf
            free_s = max(free_s, min(coming_s, gate.next_s))
        waiting += gate.opened(free_s)
        while coming < len(requests) and requests[coming].arrived_s <= free_s:
            if gate.lets_in(coming):
                waiting.append(coming)
            coming += 1
        if by_deadline:
            now_s = free_s
            waiting.sort(key=lambda index: (deadlines_s[index] < now_s, deadlines_s[index]))
        batch, tokens, reused = list[int](), 0, 0
        for index in waiting:
            tokens += requests[index].new_tokens
            if batch and tokens > LARGE_CHUNK_TOKENS:
                tokens -= requests[index].new_tokens
                break
            reused += requests[index].reused_tokens
            batch.append(index)
        del waiting[: len(batch)]
        taken_s = device.prefill_s(free_s, tokens, reused, decoding)
        step_s = device.step_s  # who comes meanwhile is decided about when the step in flight ends
        going_s, free_s = free_s, free_s + taken_s
        busy_s += taken_s
        due_s = min((deadlines_s[each] for each in batch if deadlines_s[each] >= free_s), default=math.inf)
        while by_deadline and coming < len(requests) and (came_s := requests[coming].arrived_s) < free_s:
            index, coming = coming, coming + 1
            if not gate.lets_in(index):
                continue
            one = requests[index]
            own_s = device.prefill_s(came_s, one.new_tokens, one.reused_tokens, decoding)
            done_s, later_s = max(came_s + step_s, going_s) + own_s, free_s + own_s
            # It goes ahead if that saves its deadline, and the batch has the time to spare.
            if done_s <= deadlines_s[index] < later_s <= due_s:
                going_s, free_s = done_s, later_s
                busy_s += own_s
                ttft_s[index] = done_s - came_s
                gate.begun(index, done_s)
                decoding.begun(index, done_s)
            else:
                waiting.append(index)
        for index in batch:
            ttft_s[index] = free_s - requests[index].arrived_s
            gate.begun(index, free_s)
            decoding.begun(index, free_s)
    return ttft_s, busy_s, free_s - start_s


class _Device:
    """How long things take at each moment under one set of targets."""

    def __init__(
        self,
        recent: Recent,
        targets: Mapping[str, Slo],
        questions: Questions,
        delays: dict[str, Delay],
    ) -> None:
        self._delays = delays
        self._moments = recent.moments
        self._instants = [one.at_s for one in recent.moments]
        self._targets = targets
        self._questions = questions
        self._strictest = [self._strictest_of(one.tenants) for one in recent.moments]
        self.step_s = 0.0
        """How long a step is beside the prefill that was asked about last; 0 while nobody decodes."""
        self._prompts = _by_time([one.new_tokens for one in recent.requests])
        self._context_tokens = int(nearest_rank((one.context_tokens for one in recent.moments), P50) or 1)

    @property
    def goes_by_deadline(self) -> bool:
        name, _, options = self._questions.policy.name.partition(":")
        return name == "auto" and "fcfs" not in options

    def prefill_s(self, at_s: float, new_tokens: int, reused_tokens: int, decoding: Decoding) -> float:
        """Seconds that the policy predicts for a batch at that moment; once nobody decodes, what is left of
        it has all SMs."""
        policy, new_tokens = self._questions.policy, max(1, new_tokens)
        shape = PrefillShape.of([(new_tokens, reused_tokens)])
        alone_s = policy.context.latency.prefill_s(shape, policy.table.rules.total_sms)
        decode_bs, tenants, last_s = decoding.at(at_s)
        strictest_s, self.step_s = self._strictest_of(tenants), 0.0
        if strictest_s is None:
            return alone_s
        index = bisect_right(self._instants, at_s) - 1
        tokens = _rounded(new_tokens)
        load = Assumed(
            decode_bs=_rounded(decode_bs),
            decode_context_tokens=_rounded(
                self._moments[index].context_tokens if index >= 0 else self._context_tokens
            ),
            prefill_new_tokens=tokens,
            prefill_reused_tokens=_rounded(reused_tokens),
            source="recent",
        )
        decision = self._questions.decide(strictest_s, load)
        beside_s, self.step_s = (
            duration_s(decision, load, policy) * new_tokens / tokens,
            worst_gap_s(decision),
        )
        until_s = last_s - at_s
        return beside_s if beside_s <= until_s else until_s + (1.0 - until_s / beside_s) * alone_s

    def tbt_attainment(self, busy_ratio: float, judged_by: Mapping[str, Slo]) -> dict[str, float]:
        """The share of gaps within its target, by tenant: those beside a prefill are at their bound."""
        met: dict[str, float] = {}
        seen: Counter[str] = Counter()
        policy = self._questions.policy
        latency, sms = policy.context.latency, policy.table.rules.total_sms
        for index, moment in enumerate(self._moments):
            if self._strictest[index] is None:
                continue
            shape = DecodeShape.of([moment.context_tokens] * moment.decode_bs)
            alone_s = latency.decode_s(shape, sms)
            worst_s = [
                worst_gap_s(
                    self._questions.decide(self._strictest[index] or math.inf, self._load(index, tokens, 0))
                )
                for tokens in self._prompts
            ]
            for name in moment.tenants & self._targets.keys():
                target_s = judged_by[name].tbt_s
                seen[name] += 1
                delay = delay_of(self._delays, name)
                alone = delay.gap_met(target_s - alone_s)
                worst = sum(delay.gap_met(target_s - gap_s) for gap_s in worst_s) / len(worst_s)
                share = (1.0 - busy_ratio) * alone + busy_ratio * worst
                met[name] = met.get(name, 0.0) + share
        return {name: met[name] / count for name, count in seen.items()}

    def binding(self) -> dict[str, float]:
        """The tenants whose target was the strictest, and for which share of the moments."""
        found: Counter[str] = Counter()
        for moment in self._moments:
            known = [(self._targets[name].tbt_s, name) for name in moment.tenants if name in self._targets]
            if known:
                found[min(known)[1]] += 1
        total = sum(found.values())
        return {name: count / total for name, count in found.most_common()}

    def _strictest_of(self, tenants: frozenset[str]) -> float | None:
        return min((self._targets[name].tbt_s for name in tenants if name in self._targets), default=None)

    def _load(self, index: int, new_tokens: int, reused_tokens: int) -> Assumed:
        moment = self._moments[index]
        return Assumed(
            decode_bs=_rounded(moment.decode_bs),
            decode_context_tokens=_rounded(moment.context_tokens),
            prefill_new_tokens=new_tokens,
            prefill_reused_tokens=reused_tokens,
            source="recent",
        )


def _by_time(prompts: Sequence[int]) -> list[int]:
    """Prompts that stand for equal parts of the time of prefill, which goes by their tokens: a gap beside a
    prefill is mostly one beside a long prompt."""
    ordered = sorted(max(1, tokens) for tokens in prompts) or [1]
    sums = list(accumulate(ordered))
    parts = ((2 * part + 1) / (2 * PROMPTS) * sums[-1] for part in range(PROMPTS))
    return [_rounded(ordered[bisect_left(sums, part)]) for part in parts]


def _rounded(value: int) -> int:
    """Round to the nearest step of 1/PER_OCTAVE of an octave."""
    return round(2.0 ** (round(PER_OCTAVE * math.log2(value)) / PER_OCTAVE)) if value > 0 else 0


def _arrived_s(request: EndedRequest) -> float:
    return request.arrived_s
