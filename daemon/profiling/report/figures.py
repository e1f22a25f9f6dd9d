"""Figures of a profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdmuxd.daemon.profiling.report.guard import guard_map, prefill_slowdowns, slowdowns
from pdmuxd.daemon.profiling.report.where_next import where_next
from pdmuxd.daemon.replay.report import colours
from pdmuxd.daemon.replay.report.plots import Figure, log_axis, single
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.predictors import latency_model
from pdmuxd.engine.profiling.document import MeasuredProfile
from pdmuxd.engine.profiling.measurement import Sample

HEIGHT_PX = 420
PREFILL_TOKENS = (512, 2048, 8192)
DECODE_BATCHES = ((8, 1024), (64, 1024), (64, 4096))


def all_figures(profile: MeasuredProfile) -> list[Figure]:
    """In the order in which a person would ask."""
    model = latency_model(profile.predictors(0), profile.roofline)
    figures = [
        measured_against_predicted(profile, model, "prefill"),
        measured_against_predicted(profile, model, "decode"),
        measured_against_predicted(profile, model, "fused"),
        latency_by_sms(profile, model),
        slowdowns(profile, model),
        prefill_slowdowns(profile, model),
        guard_map(profile),
        where_next(profile),
    ]
    return [figure for figure in figures if figure is not None]


def measured_against_predicted(profile: MeasuredProfile, model: SoloRunModel, mode: str) -> Figure | None:
    """Every sample of a mode, by SM count."""
    samples = [sample for sample in profile.samples if sample.point.mode == mode]
    if not samples:
        return None
    plot = single(HEIGHT_PX)
    for index, sms in enumerate(sorted({sample.sms for sample in samples})):
        ours = [sample for sample in samples if sample.sms == sms]
        measured_ms = [sample.seconds * 1000.0 for sample in ours]
        errors = [predicted_s(model, sample) / sample.seconds - 1.0 for sample in ours]
        plot.add_scatter(
            x=measured_ms,
            y=errors,
            mode="markers",
            name=f"{sms} SMs",
            marker={"color": colours.policy_colour(index), "size": 6, "symbol": index % 6},
            hovertext=[_text(sample) for sample in ours],
        )
    for limit in (-0.05, 0.05):
        plot.add_hline(y=limit, line={"color": colours.TARGET, "dash": "dash", "width": 1})
    everything_ms = [sample.seconds * 1000.0 for sample in samples]
    plot.update_xaxes(**log_axis(everything_ms, "measured, ms"))
    plot.update_yaxes(title="predicted / measured - 1", tickformat=".0%")
    return Figure(
        title=f"Measured against predicted: {mode}",
        caption="Each sample's relative error against what it took; the grey lines are 5%.",
        plot=plot,
    )


def latency_by_sms(profile: MeasuredProfile, model: SoloRunModel) -> Figure:
    """What more SMs bring to each side."""
    plot = single(HEIGHT_PX)
    shown: list[float] = []
    sizes = {
        "prefill": [fit.sms for fit in profile.solo_run if fit.prefill is not None],
        "decode": [fit.sms for fit in profile.solo_run if fit.decode is not None],
    }
    for tokens in PREFILL_TOKENS:
        shape = PrefillShape.of([(tokens, 0)])
        line_ms = [model.prefill_s(shape, sms) * 1000.0 for sms in sizes["prefill"]]
        shown += line_ms
        _line(plot, sizes["prefill"], line_ms, f"prefill of {tokens} tokens", "solid")
    for bs, context in DECODE_BATCHES:
        batch = DecodeShape(bs=bs, reused_tokens=bs * context)
        line_ms = [model.decode_s(batch, sms) * 1000.0 for sms in sizes["decode"]]
        shown += line_ms
        _line(plot, sizes["decode"], line_ms, f"decode of {bs} x {context} tokens", "dot")
    plot.update_yaxes(**log_axis(shown, "predicted, ms"))
    plot.update_xaxes(title="SMs", rangemode="tozero")
    return Figure(
        title="Latency against SM count",
        caption="Prefill is bound by compute and gains from every SM; decode is bound by bandwidth, which "
        "few SMs saturate.",
        plot=plot,
    )


def predicted_s(model: SoloRunModel, sample: Sample) -> float:
    """What the profile says of a solo sample."""
    point = sample.point
    if point.mode == "prefill":
        return model.prefill_s(point.prefill_shape, point.prefill_sms)
    if point.mode == "fused":
        return model.fused_s(point.prefill_shape, point.decode_shape, point.prefill_sms)
    return model.decode_s(point.decode_shape, point.decode_sms)


def _line(plot: object, sizes: Sequence[int], values: Sequence[float], name: str, dash: str) -> None:
    index = len(plot.data)  # type: ignore[attr-defined]
    plot.add_scatter(  # type: ignore[attr-defined]
        x=list(sizes),
        y=np.round(values, 4),
        mode="lines+markers",
        name=name,
        line={"color": colours.policy_colour(index), "dash": dash, "width": 2},
    )


def _text(sample: Sample) -> str:
    prefill, decode = sample.point.prefill_shape, sample.point.decode_shape
    parts = []
    if prefill.bs:
        parts.append(f"{prefill.bs} prompts, {prefill.new_tokens} new, {prefill.reused_tokens} reused")
    if decode.bs:
        parts.append(f"{decode.bs} decoding, {decode.reused_tokens} tokens")
    return "; ".join(parts)
