"""The dashboard's panels, as a table: what each asks of Prometheus."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Unit = Literal["s", "short", "percentunit", "reqps", "tokens/s", "ratio", "hertz", "watt", "bool_on_off"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel; `queries` are (PromQL, legend). `$node` and `$who` are selectors of node and tenant."""

    title: str
    unit: Unit
    queries: tuple[tuple[str, str], ...]
    text: str = ""
    stacked: bool = False
    is_table: bool = False
    """One row of labels for each series that there is now, over the whole width."""
    only_on_gpu: bool = False
    """The emulated GPU has no such series."""


NODE = 'job="$job", instance=~"$instance"'
WHO = f'{NODE}, tenant=~"$tenant"'


def _rate(name: str, by: str, *, more: str = "", who: str = WHO) -> str:
    return f"sum by ({by}) (rate({name}{{{who}{more}}}[$__rate_interval]))"


def _quantile(share: float, name: str, by: str = "tenant") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({share}, {_rate(name + '_bucket', labels, who=WHO if by else NODE)})"


def _met(met: str, every: str) -> str:
    return f"{_rate(met, 'tenant')} / ({_rate(every, 'tenant')} > 0)"


def _one(title: str, unit: Unit, query: str, legend: str, text: str = "") -> Panel:
    return Panel(title=title, unit=unit, queries=((query, legend),), text=text)


ROWS: dict[str, tuple[Panel, ...]] = {
    "Who is hurt": (
        Panel(
            title="Incidents that are open",
            unit="short",
            queries=((f"pdmuxd_incident{{{WHO}}}", "{{tenant}} {{cause}}"),),
            text="Who does not get what is promised, and why. A tenant's name leads to its page.",
            is_table=True,
        ),
    ),
    "Targets": (
        Panel(
            title="First tokens in time",
            unit="percentunit",
            queries=(
                (
                    _met("pdmuxd_delivered_ttft_met_total", "pdmuxd_delivered_ttft_requests_total"),
                    "{{tenant}}",
                ),
                (f"max by (tenant) (pdmuxd_slo_attainment_ratio{{{WHO}}})", "{{tenant}} promised"),
            ),
            text="Share of the first tokens that clients had in time, and the share that was promised.",
        ),
        Panel(
            title="Gaps in time",
            unit="percentunit",
            queries=(
                (
                    _met("pdmuxd_delivered_tbt_gaps_met_total", "pdmuxd_delivered_tbt_gaps_total"),
                    "{{tenant}}",
                ),
                (f"max by (tenant) (pdmuxd_slo_attainment_ratio{{{WHO}}})", "{{tenant}} promised"),
            ),
            text="Share of the gaps between tokens, as clients saw them, within the TBT target.",
        ),
        Panel(
            title="Burn of the error budget, 1 h",
            unit="ratio",
            queries=(
                (
                    'tenant:pdmuxd_ttft_missed:ratio_rate1h{job="$job", tenant=~"$tenant"} '
                    '/ tenant:pdmuxd_slo_budget:ratio{job="$job", tenant=~"$tenant"}',
                    "{{tenant}} TTFT",
                ),
                (
                    'tenant:pdmuxd_tbt_missed:ratio_rate1h{job="$job", tenant=~"$tenant"} '
                    '/ tenant:pdmuxd_slo_budget:ratio{job="$job", tenant=~"$tenant"}',
                    "{{tenant}} TBT",
                ),
            ),
            text="At 1 the budget is just used up by the end of its period. Needs the recording rules.",
        ),
        _one("Alarms raised", "short", f"pdmuxd_alarm{{{NODE}}} > 0", "{{kind}} {{tenant}}"),
    ),
    "Latency": (
        Panel(
            title="TTFT",
            unit="s",
            queries=(
                (_quantile(0.5, "pdmuxd_delivered_ttft_seconds"), "{{tenant}} p50"),
                (_quantile(0.99, "pdmuxd_delivered_ttft_seconds"), "{{tenant}} p99"),
                (f"max by (tenant) (pdmuxd_slo_ttft_fixed_seconds{{{WHO}}})", "{{tenant}} target"),
            ),
            text="As clients saw it. The target is that of an empty prompt: long ones are given more.",
        ),
        Panel(
            title="Gaps between tokens",
            unit="s",
            queries=(
                (_quantile(0.5, "pdmuxd_delivered_tbt_seconds"), "{{tenant}} p50"),
                (_quantile(0.99, "pdmuxd_delivered_tbt_seconds"), "{{tenant}} p99"),
                (f"max by (tenant) (pdmuxd_slo_tbt_seconds{{{WHO}}})", "{{tenant}} target"),
            ),
            text="As clients saw them.",
        ),
        _one(
            "Longest gap of a request, p99",
            "s",
            _quantile(0.99, "pdmuxd_tbt_max_seconds"),
            "{{tenant}}",
        ),
        Panel(
            title="Waiting for prefill",
            unit="s",
            queries=(
                (_quantile(0.5, "pdmuxd_queue_seconds", ""), "p50"),
                (_quantile(0.99, "pdmuxd_queue_seconds", ""), "p99"),
                (f"max by (tenant) (pdmuxd_gateway_oldest_wait_seconds{{{WHO}}})", "{{tenant}} oldest now"),
            ),
            text="Percentiles of requests whose prefill began; the oldest that has no first token yet.",
        ),
        _one(
            "TTFT p99.9, 1 h",
            "s",
            'tenant:pdmuxd_ttft:p999_1h{job="$job", tenant=~"$tenant"}',
            "{{tenant}}",
            "As clients saw it, one request in a thousand. Needs the recording rules.",
        ),
        _one(
            "First tokens late by length of the prompt, 1 h",
            "percentunit",
            'tenant:pdmuxd_ttft_by_length_missed:ratio_rate1h{job="$job", tenant=~"$tenant"}',
            "{{tenant}} {{new_tokens}}",
            "By prompt tokens that were not cached. Needs the recording rules.",
        ),
    ),
    "Load": (
        _one("Requests", "reqps", _rate("pdmuxd_requests_total", "tenant, status"), "{{tenant}} {{status}}"),
        Panel(
            title="Good requests",
            unit="reqps",
            queries=(
                (_rate("pdmuxd_good_delivered_requests_total", "tenant"), "{{tenant}} at the client"),
                (_rate("pdmuxd_good_requests_total", "tenant"), "{{tenant}} by steps"),
                (_rate("pdmuxd_good_forgiven_requests_total", "tenant"), "{{tenant}} but for one late gap"),
            ),
            text="Finished with TTFT and the p99 of their gaps in time: goodput.",
        ),
        _one("Refusals", "reqps", _rate("pdmuxd_refusals_total", "tenant, cause"), "{{tenant}} {{cause}}"),
        Panel(
            title="Places held",
            unit="short",
            queries=(
                (f"sum by (tenant) (pdmuxd_requests_in_flight{{{WHO}}})", "{{tenant}}"),
                (f"sum by (tenant) (pdmuxd_gateway_waiting_requests{{{WHO}}})", "{{tenant}} no byte yet"),
                (f"sum by (tenant) (pdmuxd_gateway_late_requests{{{WHO}}})", "{{tenant}} late now"),
                (f"sum (pdmuxd_node_in_flight_limit{{{NODE}}})", "limit of all"),
            ),
        ),
        _one(
            "Prompt tokens computed",
            "tokens/s",
            f"{_rate('pdmuxd_prompt_tokens_total', 'tenant')} "
            f"- {_rate('pdmuxd_reused_tokens_total', 'tenant')}",
            "{{tenant}}",
            "Without those that the prefix cache had.",
        ),
        _one("Output tokens", "tokens/s", _rate("pdmuxd_output_tokens_total", "tenant"), "{{tenant}}"),
        _one(
            "Prefix cache hits",
            "percentunit",
            f"{_rate('pdmuxd_reused_tokens_total', 'tenant')} "
            f"/ ({_rate('pdmuxd_prompt_tokens_total', 'tenant')} > 0)",
            "{{tenant}}",
        ),
        Panel(
            title="Share of SM time",
            unit="percentunit",
            queries=(
                (
                    f"avg by (tenant) (tenant:pdmuxd_sm_time:share_rate5m{{{WHO}}})",
                    "{{tenant}}",
                ),
            ),
            stacked=True,
            text="Of that in use, by prompt tokens computed and tokens produced. Needs the recording rules.",
        ),
        Panel(
            title="Prefill time lost to TBT targets",
            unit="percentunit",
            queries=(
                (_rate("pdmuxd_tbt_cost_prefill_seconds_total", "tenant"), "{{tenant}}"),
                (f"max by (tenant) (pdmuxd_tbt_capped{{{WHO}}})", "{{tenant}} is capped if 1"),
            ),
            text="Of the time: what all would get back if the tenant asked for no more than the others.",
        ),
    ),
    "Scheduling": (
        Panel(
            title="Split of the SMs",
            unit="short",
            queries=(
                (f"pdmuxd_engine_prefill_sms{{{NODE}}}", "{{instance}} prefill"),
                (f"pdmuxd_engine_decode_sms{{{NODE}}}", "{{instance}} decode"),
            ),
            stacked=True,
        ),
        Panel(
            title="SM time in use",
            unit="percentunit",
            queries=(
                (f"pdmuxd_engine_sm_busy_ratio{{{NODE}}}", "{{instance}} {{phase}}"),
                (
                    f"1 - sum by (instance) (pdmuxd_engine_sm_busy_ratio{{{NODE}}})",
                    "{{instance}} idle",
                ),
            ),
            stacked=True,
        ),
        _one(
            "Decisions",
            "short",
            _rate("pdmuxd_decisions_total", "mode, reason", who=NODE),
            "{{mode}}: {{reason}}",
            "Steps a second, by why the policy decided so.",
        ),
        Panel(
            title="Switches, preemptions, retractions",
            unit="short",
            queries=(
                (_rate("pdmuxd_engine_switches_total", "instance", who=NODE), "switches/s"),
                (_rate("pdmuxd_engine_preemptions_total", "instance", who=NODE), "preemptions/s"),
                (_rate("pdmuxd_engine_retractions_total", "instance", who=NODE), "retractions/s"),
            ),
        ),
        _one(
            "Measured over predicted, median",
            "ratio",
            f'pdmuxd_prediction_ratio{{{NODE}, quantile="0.5"}}',
            "{{work}} on {{sms}} SMs",
            "Of work that ran alone. More than 15% off is drift.",
        ),
        Panel(
            title="Contention guard",
            unit="ratio",
            queries=((f"pdmuxd_guard_max_ratio{{{NODE}}}", "{{instance}} largest bound"),),
            text="How much slower decode may be beside prefill, by the largest of the guard's bounds.",
        ),
    ),
    "Engine and node": (
        Panel(
            title="Requests in the engine",
            unit="short",
            queries=(
                (f"pdmuxd_engine_running{{{NODE}}}", "{{instance}} decoding"),
                (f"pdmuxd_engine_prefilling{{{NODE}}}", "{{instance}} in prefill"),
                (f"pdmuxd_engine_waiting{{{NODE}}}", "{{instance}} waiting"),
            ),
        ),
        Panel(
            title="KV pool",
            unit="percentunit",
            queries=(
                (
                    f"pdmuxd_engine_kv_used_tokens{{{NODE}}} / pdmuxd_engine_kv_capacity_tokens{{{NODE}}}",
                    "{{instance}} in use",
                ),
                (
                    f"pdmuxd_engine_cached_tokens{{{NODE}}} / pdmuxd_engine_kv_capacity_tokens{{{NODE}}}",
                    "{{instance}} prefix cache",
                ),
            ),
        ),
        Panel(
            title="Engine",
            unit="short",
            queries=(
                (f"pdmuxd_engine_up{{{NODE}}}", "{{instance}} up"),
                (f"increase(pdmuxd_engine_restarts_total{{{NODE}}}[15m])", "{{instance}} restarts in 15 min"),
            ),
        ),
        _one(
            "Requests that ended early",
            "reqps",
            _rate("pdmuxd_gateway_aborts_total", "cause", who=NODE),
            "{{cause}}",
        ),
        _one(
            "Connections",
            "short",
            f"pdmuxd_http_connections{{{NODE}}}",
            "{{instance}} {{listener}}",
        ),
        Panel(
            title="Daemon: CPU and memory",
            unit="short",
            queries=(
                (f"rate(pdmuxd_process_cpu_seconds_total{{{NODE}}}[$__rate_interval])", "{{instance}} cores"),
                (f"pdmuxd_process_resident_memory_bytes{{{NODE}}} / 2^30", "{{instance}} GiB"),
            ),
        ),
        Panel(
            title="GPU clock",
            unit="hertz",
            queries=((f"pdmuxd_engine_gpu_clock_hertz{{{NODE}}}", "{{instance}}"),),
            only_on_gpu=True,
        ),
        Panel(
            title="GPU power",
            unit="watt",
            queries=((f"pdmuxd_engine_gpu_power_watts{{{NODE}}}", "{{instance}}"),),
            only_on_gpu=True,
        ),
    ),
}
"""Rows of panels, each a third or a quarter of the width."""
