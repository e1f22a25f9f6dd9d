"""The report of a profile: its header, its errors and its figures."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import msgspec

from pdmuxd.daemon.profiling.report.figures import all_figures
from pdmuxd.daemon.replay.report.assemble import Page, TableColumn, TableRow, TableSection, assemble
from pdmuxd.engine.profiling.document import FitErrors, MeasuredProfile, from_json

HEADINGS = ("Predictor", "SMs", "Samples", "Outliers", "p50", "p90", "max")


def report_page(document: dict[str, Any], learned: dict[str, Any]) -> str:
    """The page as text, from what REST exports. Raises: ProfileError."""
    profile = from_json(msgspec.json.encode(document), "the export")
    provenance = profile.provenance
    return assemble(
        Page(
            title=f"Profile {profile.name}",
            lead=f"{provenance.model} on {profile.devices}: measured against predicted",
            notes=[f"Left out: {one}" for one in profile.left_out] + _learned_notes(learned),
            facts=_facts(profile),
            caption="Relative errors on samples that the predictor was not fitted to (cross-validated); "
            "the roofline's are of all samples.",
            columns=[TableColumn(text=heading) for heading in HEADINGS],
            sections=[TableSection(rows=[_row(fit) for fit in profile.fits])],
            figures=all_figures(profile),
            command="pdmuxd profile report",
            version=version("pdmuxd"),
            created_at=provenance.measured_at,
        )
    )


def _learned_notes(learned: dict[str, Any]) -> list[str]:
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
                f"{guard.pairs} pairs; {guard.exceeded_ratio:.1%} of held-out pairs were slower than their "
                f"bound, which is {guard.overestimate_ratio:.1%} too high on average",
            )
        )
    return facts


def _row(fit: FitErrors) -> TableRow:
    errors = (fit.errors.p50, fit.errors.p90, fit.errors.max)
    return TableRow(
        label=fit.predictor,
        cells=[
            str(fit.sms or "all"),
            str(fit.samples),
            str(fit.outliers),
            *(f"{one:.1%}" for one in errors),
        ],
    )
