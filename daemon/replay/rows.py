"""The rows of the result as text, for the terminal and for the report alike."""

from __future__ import annotations

import math
from collections.abc import Callable

from pdmuxd.daemon.replay.document import PolicyDocument, ReplayDocument
from pdmuxd.daemon.replay.metrics import LENGTH_CLASSES, QUARTERS, GroupAttainment, Metrics, Percentiles
from pdmuxd.daemon.report.colours import policy_colour
from pdmuxd.daemon.report.table import Cell, Table, TableColumn, TableRow, TableSection

MAX_TENANT_ROWS = 8
"""More tenants than this are in the JSON only."""

_USE = "of what decode steps with prompt tokens in or beside them take of the TBT target"


_Text = Callable[[Metrics], str]
_Spec = tuple[str, str, _Text]


def table(document: ReplayDocument) -> Table:
    """A column for each policy, a row for each metric."""
    policies = [
        TableColumn(text=policy.policy, colour=policy_colour(index))
        for index, policy in enumerate(document.policies)
    ]
    columns = [TableColumn(text="Metric"), *policies, TableColumn(text="", is_meaning=True)]
    return Table(columns=columns, sections=sections(document), compares="columns")


def sections(document: ReplayDocument) -> tuple[TableSection, ...]:
    """All rows, in order. Labels are short enough for four policies in 80 columns."""
    metrics = [policy.metrics for policy in document.policies]
    built = [
        _section(title, specs, metrics, document.slo.attainment_ratio)
        for title, specs in (
            ("Requests", _requests()),
            ("TTFT, ms", _ttft()),
            ("TBT, ms", _percentiles("gap between two tokens", lambda m: m.tbt)),
            ("Within target", _attainment(document)),
            ("In time by new tokens", _by_quarter(metrics)),
            ("Good by prompt length", _by_length()),
            ("Good by tenant", _by_tenant(metrics[0])),
            ("Rates, per second", _rates()),
            ("SM time", _sm_time()),
            ("Engine", _engine()),
        )
        if specs
    ]
    return (*built, _durations(document.policies, metrics))


def milliseconds(value: float) -> str:
    """A whole number from 100 on, else one decimal; `never` if infinite."""
    if math.isinf(value):
        return "never"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def percent(ratio: float) -> str:
    """One decimal, and never a rounded 100.0% of something that is not all."""
    tenths = math.floor(ratio * 1000 + 1e-9) if ratio > 0.99 else round(ratio * 1000)
    return f"{tenths / 10:.1f}%"


def verdict(document: ReplayDocument) -> str:
    """The verdict: which policies keep the targets, and their goodput."""
    held = [one for one in document.policies if one.metrics.targets_met]
    if not held:
        nearest = max(document.policies, key=lambda one: one.metrics.good_ratio)
        missed = _missed(document, nearest.metrics)
        who = "No policy keeps both targets; the nearest," if len(document.policies) > 1 else ""
        return f"{who} {nearest.policy} misses {missed}: {_good(nearest.metrics)}.".strip()
    best = max(held, key=lambda one: one.metrics.goodput_requests_per_s)
    if len(document.policies) == 1:
        return f"{best.policy} keeps both targets: {_good(best.metrics)}."
    if len(held) == 1:
        return f"Only {best.policy} keeps both targets: {_good(best.metrics)}."
    others = f"{len(held)} of {len(document.policies)} policies keep both targets"
    return f"{others}; the best of them is {best.policy}: {_good(best.metrics)}."


def _good(metrics: Metrics) -> str:
    offered = metrics.requests / metrics.arrival_span_s if metrics.arrival_span_s > 0 else 0.0
    if not offered:
        return f"{percent(metrics.good_ratio)} of requests were good"
    return f"{metrics.goodput_requests_per_s:.3g} of {offered:.3g} requests a second were good"


def _missed(document: ReplayDocument, metrics: Metrics) -> str:
    least = document.slo.attainment_ratio
    found = [
        f"the {name} target ({percent(ratio)} of {least * 100:g}%)"
        for name, ratio in (("TTFT", metrics.ttft_attainment_ratio), ("TBT", metrics.tbt_attainment_ratio))
        if ratio < least
    ]
    return " and ".join(found)


def _section(title: str, specs: list[_Spec], metrics: list[Metrics], attainment_ratio: float) -> TableSection:
    return TableSection(
        title=title,
        rows=[
            TableRow(
                label=label,
                meaning=meaning,
                cells=[Cell(text(m), _is_met(title, label, m, attainment_ratio)) for m in metrics],
            )
            for label, meaning, text in specs
        ],
    )


def _is_met(title: str, label: str, metrics: Metrics, attainment_ratio: float) -> bool | None:
    if title != "Within target":
        return None
    ratios = {
        "TTFT": metrics.ttft_attainment_ratio,
        "TBT": metrics.tbt_attainment_ratio,
        "good requests": metrics.good_ratio,
        "good, every gap": metrics.good_strict_ratio,
    }
    return ratios[label] >= attainment_ratio if label in ratios else metrics.targets_met


def _requests() -> list[_Spec]:
    return [
        ("replayed", "requests that arrived at the engine", lambda m: f"{m.requests:,}"),
        ("failed", "refused or aborted by the engine; misses everywhere", lambda m: f"{m.failed:,}"),
        ("unfinished", "never ended; misses everywhere", lambda m: f"{m.unfinished:,}"),
    ]


def _percentiles(of: str, pick: Callable[[Metrics], Percentiles]) -> list[_Spec]:
    return [
        ("p50", f"median {of}", lambda m: milliseconds(pick(m).p50_ms)),
        ("p90", f"90th percentile, {of}", lambda m: milliseconds(pick(m).p90_ms)),
        ("p99", f"99th percentile, {of}", lambda m: milliseconds(pick(m).p99_ms)),
        ("p99.9", f"99.9th percentile, {of}", lambda m: milliseconds(pick(m).p99_9_ms)),
        ("max", f"largest {of}", lambda m: milliseconds(pick(m).max_ms)),
    ]


def _ttft() -> list[_Spec]:
    per_1k = "99th percentile of TTFT divided by the thousands of prompt tokens that were not cached"
    return [
        *_percentiles("time from arrival to first token", lambda m: m.ttft),
        ("p99 per 1K new", per_1k, lambda m: milliseconds(m.ttft_per_1k_new_tokens_p99_ms)),
        (
            "late requests",
            "whose first token came after its target, or never",
            lambda m: f"{m.late_requests:,}",
        ),
        ("late by, p50", "of these, median beyond the target", lambda m: _late_by(m, m.late_by.p50_ms)),
        ("late by, p99", "of these, 99th percentile", lambda m: _late_by(m, m.late_by.p99_ms)),
    ]


def _late_by(metrics: Metrics, value_ms: float) -> str:
    return milliseconds(value_ms) if metrics.late_requests else "-"


def _attainment(document: ReplayDocument) -> list[_Spec]:
    ratio = f"{document.slo.attainment_ratio * 100:g}%"
    return [
        ("TTFT", "share of requests", lambda m: percent(m.ttft_attainment_ratio)),
        ("TBT", "share of all gaps that were owed", lambda m: percent(m.tbt_attainment_ratio)),
        (f"both reach {ratio}", "the SLO's attainment", lambda m: "yes" if m.targets_met else "no"),
        ("good requests", "TTFT and the request's own p99 gap", lambda m: percent(m.good_ratio)),
        (
            "good, 1 forgiven",
            "good, or good without one late gap",
            lambda m: percent(m.good_forgiven_ratio),
        ),
        ("good, every gap", "TTFT and every single gap", lambda m: percent(m.good_strict_ratio)),
    ]


def _by_length() -> list[_Spec]:
    return [
        (f"{name} tokens", "share of good requests", _group_cell(lambda m: m.by_input_tokens, index))
        for index, (name, _, _) in enumerate(LENGTH_CLASSES)
    ]


def _by_quarter(metrics: list[Metrics]) -> list[_Spec]:
    if not all(m.by_new_tokens_quarter for m in metrics):
        return []
    of = "first tokens in time, by prompt tokens that were not cached"
    return [
        (name, of, _group_cell(lambda m: m.by_new_tokens_quarter, index, lambda g: g.ttft_attainment_ratio))
        for index, name in enumerate(QUARTERS)
    ]


def _by_tenant(first: Metrics) -> list[_Spec]:
    if not 1 < len(first.by_tenant) <= MAX_TENANT_ROWS:
        return []
    return [
        (group.name, "share of good requests", _group_cell(lambda m: m.by_tenant, index))
        for index, group in enumerate(first.by_tenant)
    ]


def _group_cell(
    pick: Callable[[Metrics], tuple[GroupAttainment, ...]],
    index: int,
    ratio: Callable[[GroupAttainment], float] = lambda group: group.good_ratio,
) -> _Text:
    def cell(metrics: Metrics) -> str:
        group = pick(metrics)[index]
        return percent(ratio(group)) if group.requests else "-"

    return cell


def _rates() -> list[_Spec]:
    return [
        (
            "goodput, requests",
            "good requests over the arrival span",
            lambda m: f"{m.goodput_requests_per_s:.2f}",
        ),
        ("goodput, tokens", "their output tokens", lambda m: f"{m.goodput_output_tokens_per_s:,.0f}"),
        ("requests", "finished requests over the makespan", lambda m: f"{m.throughput_requests_per_s:.2f}"),
        ("input tokens", "prompt tokens, cached ones included", lambda m: f"{m.input_tokens_per_s:,.0f}"),
        ("output tokens", "all tokens produced", lambda m: f"{m.output_tokens_per_s:,.0f}"),
    ]


def _sm_time() -> list[_Spec]:
    return [
        ("prefill", "share of SM-seconds of the makespan", lambda m: percent(m.prefill_sm_ratio)),
        ("decode", "share of SM-seconds of the makespan", lambda m: percent(m.decode_sm_ratio)),
        ("idle", "what neither used", lambda m: percent(m.idle_sm_ratio)),
    ]


def _use(ratio: float | None) -> str:
    return "-" if ratio is None else percent(ratio)


def _engine() -> list[_Spec]:
    return [
        ("cache hits", "prompt tokens found in the prefix cache", lambda m: percent(m.cache_hit_ratio)),
        ("steps", "decisions carried out", lambda m: f"{m.steps:,}"),
        (
            "stalled steps",
            "decode and fused steps that took far longer than steps of their size do",
            lambda m: f"{m.stalled_steps:,}",
        ),
        (
            "host-delayed steps",
            "for which the device waited for the host for more than a millisecond",
            lambda m: f"{m.host_delayed_steps:,}",
        ),
        ("TBT used, p50", f"median {_USE}", lambda m: _use(m.tbt_use_p50_ratio)),
        ("TBT used, p99", f"99th percentile, {_USE}", lambda m: _use(m.tbt_use_p99_ratio)),
        ("switches", "changes of the partition group", lambda m: f"{m.switches:,}"),
        ("preemptions", "prefills set aside for a shorter one", lambda m: f"{m.preemptions:,}"),
        ("retractions", "decodes put back for lack of KV memory", lambda m: f"{m.retractions:,}"),
    ]


def _durations(policies: tuple[PolicyDocument, ...], metrics: list[Metrics]) -> TableSection:
    specs: list[_Spec] = [
        ("arrivals", "first to last arrival, virtual", lambda m: f"{m.arrival_span_s:,.0f} s"),
        ("makespan", "first arrival to last token, virtual", lambda m: f"{m.makespan_s:,.0f} s"),
    ]
    virtual = _section("Time", specs, metrics, attainment_ratio=1.0)
    real = TableRow(
        label="replay took",
        meaning="real seconds on the machine that replayed it",
        cells=[f"{policy.wall_s:.1f} s" for policy in policies],
    )
    return TableSection(title=virtual.title, rows=[*virtual.rows, real])
