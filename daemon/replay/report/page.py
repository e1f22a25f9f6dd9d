"""The report of a replay: its header, summary table and figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

from pdmuxd.daemon.replay.document import ReplayDocument
from pdmuxd.daemon.replay.notes import notes
from pdmuxd.daemon.replay.report.figures import all_figures
from pdmuxd.daemon.replay.rows import table, verdict
from pdmuxd.daemon.replay.run import PolicyReplay
from pdmuxd.daemon.report.page import Page, assemble
from pdmuxd.engine.core.slo import Slo


def render(document: ReplayDocument, replays: Sequence[PolicyReplay], slo: Slo) -> str:
    """The whole report as text."""
    return assemble(
        Page(
            title=f"Replay of {PurePath(document.trace.file).name}",
            verdict=verdict(document),
            lead=_lead(document),
            notes=notes(document),
            facts=_facts(document),
            caption="Percentiles are nearest rank; requests that never finished count as misses.",
            table=table(document),
            figures=all_figures(replays, slo),
            command=document.command,
            version=document.pdmuxd_version,
            created_at=document.created_at,
        )
    )


def _lead(document: ReplayDocument) -> str:
    policies = ", ".join(policy.policy for policy in document.policies)
    return f"{document.trace.requests:,} requests on the emulated {document.profile.device}, under {policies}"


def _facts(document: ReplayDocument) -> list[tuple[str, str]]:
    trace, profile, slo = document.trace, document.profile, document.slo
    whole = "" if slo.e2e_ms is None else f"whole answers {slo.e2e_ms:g} ms; "
    return [
        ("Trace", f"{trace.file} ({trace.format}), seed {trace.seed}"),
        (
            "Load",
            f"{trace.requests:,} requests over {trace.arrival_span_s:,.0f} s "
            f"({trace.rate_requests_per_s:.2f} a second), {trace.input_tokens:,} input and "
            f"{trace.output_tokens:,} output tokens",
        ),
        ("Profile", f"{profile.name}: {profile.model} on {profile.device}, {profile.total_sms} SMs"),
        ("Provenance", profile.provenance),
        ("KV pool", f"{profile.kv_capacity_tokens:,} tokens"),
        (
            "Targets",
            f"TTFT {slo.ttft_fixed_ms:g} ms plus {slo.ttft_per_1k_new_tokens_ms:g} ms per 1,000 new tokens; "
            f"TBT {slo.tbt_ms:g} ms; {whole}attainment {slo.attainment_ratio * 100:g}%",
        ),
        ("Policies", ", ".join(policy.policy for policy in document.policies)),
    ]
