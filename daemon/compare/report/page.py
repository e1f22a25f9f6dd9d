"""The report of a comparison: its header, its table and its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from pdmuxd.daemon.compare.report.figures import all_figures
from pdmuxd.daemon.compare.rows import notes, table, verdict
from pdmuxd.daemon.compare.schema import CompareDocument
from pdmuxd.daemon.compare.stages import CommonRate
from pdmuxd.daemon.report.page import Page, assemble
from pdmuxd.engine.core.slo import Slo


def render(document: CompareDocument, common: Sequence[CommonRate], slos: Sequence[Slo]) -> str:
    """The whole report as text; `common` and `slos` go together, one for each TBT target."""
    policies = dict.fromkeys(cell.policy for cell in document.cells)
    return assemble(
        Page(
            title=f"Policies compared on {PurePath(document.workload.file).name}",
            verdict=verdict(document),
            lead=f"The rates that {', '.join(policies)} hold on the emulated {document.profile.device}",
            notes=notes(document),
            facts=_facts(document),
            caption="Latencies and SM shares are those at each policy's own goodput, means over the seeds; "
            "percentiles are nearest rank.",
            table=table(document),
            figures=all_figures(document, common, slos),
            command=document.command,
            version=document.pdmuxd_version,
            created_at=document.created_at,
        )
    )


def _facts(document: CompareDocument) -> list[tuple[str, str]]:
    workload, profile, targets, runs = (
        document.workload,
        document.profile,
        document.targets,
        document.runs,
    )
    whole = "" if targets.e2e_ms is None else f", whole answers {targets.e2e_ms:g} ms"
    return [
        ("Trace", f"{workload.file} ({workload.format}), {workload.requests:,} requests"),
        (
            "Lengths",
            f"{workload.mean_input_tokens:,.0f} input and {workload.mean_output_tokens:,.0f} output tokens "
            f"on average, in {'a seeded' if workload.order == 'shuffled' else 'their recorded'} order",
        ),
        (
            "Runs",
            f"{runs.seconds:g} s of Poisson arrivals, then drained; seeds {', '.join(map(str, runs.seeds))}; "
            f"rates to {runs.resolution_ratio:.1%}",
        ),
        ("Profile", f"{profile.name}: {profile.model} on {profile.device}, {profile.total_sms} SMs"),
        ("Provenance", profile.provenance),
        (
            "Targets",
            f"TTFT {targets.ttft_fixed_ms:g} ms plus {targets.ttft_per_1k_new_tokens_ms:g} ms per 1,000 new "
            f"tokens; TBT {', '.join(f'{tbt_ms:g}' for tbt_ms in targets.tbt_ms)} ms for the p99 of a "
            f"request's gaps{whole}; {targets.attainment_ratio * 100:g}% of requests",
        ),
    ]
