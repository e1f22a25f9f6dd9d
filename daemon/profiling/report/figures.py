"""Figures of a profile."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from pdmuxd.daemon.profiling.report.guard import guard_map, prefill_slowdowns, slowdowns
from pdmuxd.daemon.profiling.report.where_next import where_next
from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.plots import Figure, log_axis, single
from pdmuxd.engine.core.latency import SoloRunModel
from pdmuxd.engine.core.types import DecodeShape, PrefillShape
from pdmuxd.engine.link.predictors import latency_model
from pdmuxd.engine.profiling.document import FitErrors, MeasuredProfile
from pdmuxd.engine.profiling.measurement import Sample

HEIGHT_PX = 420
PREFILL_TOKENS = (512, 2048, 8192)
DECODE_BATCHES = ((8, 1024), (64, 1024), (64, 4096))


def all_figures(profile: MeasuredProfile) -> list[Figure]:
    """All figures, in the order in which a person would ask."""
    model = latency_model(profile.predictors(0), profile.roofline)
    figures = [
        held_out_errors(profile, "prefill"),
        held_out_errors(profile, "decode"),
        held_out_errors(profile, "fused"),
        latency_by_sms(profile, model),
        slowdowns(profile, model),
        prefill_slowdowns(profile, model),
        guard_map(profile),
        where_next(profile),
    ]
    return [figure for figure in figures if figure is not None]


def held_out_errors(profile: MeasuredProfile, mode: str) -> Figure | None:
    """Every sample of a mode, by SM count, as a fit without it predicts it: what the table sums up."""
    fits = [fit for fit in profile.fits if fit.predictor == mode and fit.held_out]
    pairs = {fit.sms: _judged(profile, fit) for fit in fits}
    every_ms = [sample.seconds * 1000.0 for found in pairs.values() for sample, _ in found]
    if not every_ms:
        return None
    plot = single(HEIGHT_PX)
    for index, (sms, found) in enumerate(sorted(pairs.items())):
        plot.add_scatter(
            x=[sample.seconds * 1000.0 for sample, _ in found],
            y=[error for _, error in found],
            mode="markers",
            name=f"{sms} SMs",
            marker={"color": colours.partition_colour(index, len(pairs)), "size": 6, "symbol": index % 6},
            hovertext=[_text(sample) for sample, _ in found],
        )
    for limit in (-0.05, 0.05):
        plot.add_hline(y=limit, line={"color": colours.TARGET, "dash": "dash", "width": 1})
    plot.update_xaxes(**log_axis(every_ms, "measured, ms"))
    plot.update_yaxes(title="predicted / measured - 1", tickformat=".0%")
    return Figure(
        title=f"Errors on held-out samples: {mode}",
        caption="Each sample as it is predicted by a fit to the others, against what it took; the table has "
        "the percentiles of these. The grey lines are 5%.",
        plot=plot,
    )


def _judged(profile: MeasuredProfile, fit: FitErrors) -> list[tuple[Sample, float]]:
    ours = [one for one in profile.samples if one.point.mode == fit.predictor and one.sms == fit.sms]
    if len(ours) != len(fit.held_out):
        return []
    return [(one, error) for one, error in zip(ours, fit.held_out, strict=True) if error is not None]


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
        dash = colours.policy_dash(PREFILL_TOKENS.index(tokens))
        _line(plot, sizes["prefill"], line_ms, f"prefill of {tokens} tokens", colours.PREFILL, dash)
    for bs, context in DECODE_BATCHES:
        batch = DecodeShape(bs=bs, reused_tokens=bs * context)
        line_ms = [model.decode_s(batch, sms) * 1000.0 for sms in sizes["decode"]]
        shown += line_ms
        dash = colours.policy_dash(DECODE_BATCHES.index((bs, context)))
        _line(plot, sizes["decode"], line_ms, f"decode of {bs} x {context} tokens", colours.DECODE, dash)
    plot.update_yaxes(**log_axis(shown, "predicted, ms"))
    plot.update_xaxes(title="SMs", rangemode="tozero")
    return Figure(
        title="Latency against SM count",
        caption="Prefill is bound by compute and gains from every SM; decode is bound by bandwidth, which "
        "few SMs saturate.",
        plot=plot,
    )


def _line(
    plot: object, sizes: Sequence[int], values: Sequence[float], name: str, colour: str, dash: str
) -> None:
    plot.add_scatter(  # type: ignore[attr-defined]
        x=list(sizes),
        y=np.round(values, 4),
        mode="lines+markers",
        name=name,
        line={"color": colour, "dash": dash, "width": 2},
    )


def _text(sample: Sample) -> str:
    prefill, decode = sample.point.prefill_shape, sample.point.decode_shape
    parts = []
    if prefill.bs:
        parts.append(f"{prefill.bs} prompts, {prefill.new_tokens} new, {prefill.reused_tokens} reused")
    if decode.bs:
        parts.append(f"{decode.bs} decoding, {decode.reused_tokens} tokens")
    return "; ".join(parts)
