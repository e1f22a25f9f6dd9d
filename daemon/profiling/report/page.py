"""The report of a profile: its header, its errors and its figures."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import msgspec

from pdmuxd.daemon.profiling.report.figures import all_figures
from pdmuxd.daemon.report.page import Page, assemble
from pdmuxd.daemon.report.table import Cell, Table, TableColumn, TableRow, TableSection
from pdmuxd.engine.profiling.document import FitErrors, MeasuredProfile, from_json
from pdmuxd.engine.profiling.gate import MAX_P90, doubts, refused_because

HEADINGS = ("Predictor", "SMs", "Samples", "Outliers", "p50", "p90", "max")


def report_page(document: dict[str, Any], learned: Mapping[str, Any]) -> str:
    """The page as text, from what REST exports. Raises: ProfileError."""
    profile = from_json(msgspec.json.encode(document), "the export")
    provenance = profile.provenance
    return assemble(
        Page(
            title=f"Profile {profile.name}",
            verdict=_verdict(profile),
            lead=f"{provenance.model} on {profile.devices}: measured against predicted",
            notes=[f"Left out: {one}" for one in profile.left_out]
            + _old_notes(profile)
            + _learned_notes(learned),
            facts=_facts(profile),
            caption="Relative errors on samples that the predictor was not fitted to (cross-validated); "
            "the roofline's are of all samples.",
            table=Table(
                columns=[TableColumn(text=heading) for heading in HEADINGS],
                sections=[TableSection(rows=[_row(fit) for fit in profile.fits])],
            ),
            figures=all_figures(profile),
            command="pdmuxd profile report",
            version=version("pdmuxd"),
            created_at=provenance.measured_at,
        )
    )


def _verdict(profile: MeasuredProfile) -> str:
    refused = refused_because(profile, None)
    if refused is not None:
        return f"Doubtful: {refused}."
    told = doubts(profile)
    if told:
        return "Accurate enough to be put in force, but for: " + "; ".join(one.text for one in told) + "."
    return (
        "Accurate enough to be put in force: on samples that they were not fitted to, nine in ten "
        f"predictions of every predictor are within {profile.worst_p90:.1%}."
    )


def _old_notes(profile: MeasuredProfile) -> list[str]:
    if any(fit.held_out for fit in profile.fits):
        return []
    return [
        "Measured before errors were kept by sample: their plots are missing; the table has what is known."
    ]


def _learned_notes(learned: Mapping[str, Any]) -> list[str]:
    cells, corrections = len(learned["cells"]), len(learned["corrections"])
    if not cells and not corrections:
        return []
    return [
        f"Since then, serving has moved {cells} guard cells and {corrections} corrections; see `changes`."
    ]


def _facts(profile: MeasuredProfile) -> list[tuple[str, str]]:
    device, overheads, guard = profile.device, profile.overheads, profile.guard
    facts = [
        ("Provenance", profile.provenance_line),
        ("Measuring", f"{profile.provenance.samples} samples in {profile.provenance.took_s:.0f} s"),
        (
            "Device",
            f"{device.flops / 1e12:.0f} TFLOP/s and {device.bytes_per_s / 1e12:.2f} TB/s on "
            f"{device.total_sms} SMs, curvature of bandwidth {device.bandwidth_curvature:.2f}, of compute "
            f"{device.compute_curvature:.2f}; {device.serial_ratio:.0%} of moving bytes not overlapped",
        ),
        (
            "Fixed costs",
            f"{overheads.layer_launch_s * 1e6:.0f} us to launch a layer, "
            f"{overheads.graph_launch_s * 1e6:.0f} us a graph; {overheads.host_step_s * 1e3:.2f} ms of host "
            "work in a decode step",
        ),
        ("Model hash", profile.provenance.model_hash[:16] or "unknown"),
    ]
    if guard is not None:
        facts.append(
            (
                "Guard",
                f"measured on {guard.pairs} pairs of prefill and decode; of the pairs kept for checking "
                f"{guard.exceeded_ratio:.1%} were slower than its bound, which lies "
                f"{guard.overestimate_ratio:.1%} above what was measured, on average",
            )
        )
    return facts


def _row(fit: FitErrors) -> TableRow:
    p90 = f"{fit.errors.p90:.1%}"
    is_met = None if fit.predictor == "roofline" else fit.errors.p90 <= MAX_P90
    return TableRow(
        label=fit.predictor,
        cells=[
            str(fit.sms or "all"),
            str(fit.samples),
            str(fit.outliers),
            f"{fit.errors.p50:.1%}",
            Cell(p90, is_met),
            f"{fit.errors.max:.1%}",
        ],
    )
