"""Where more samples would say most: the shapes that a predictor's samples say least about."""

from __future__ import annotations

import numpy as np

from pdmuxd.daemon.report import colours
from pdmuxd.daemon.report.plots import Figure, log_axis, single
from pdmuxd.engine.profiling.assessment import Uncertainty, uncertainties
from pdmuxd.engine.profiling.document import MeasuredProfile

SHOWN = 12


def where_next(profile: MeasuredProfile) -> Figure | None:
    """The least certain shapes of each predictor, as marks whose size is their uncertainty."""
    found = uncertainties(profile)
    if not found:
        return None
    plot = single(420)
    shown: list[Uncertainty] = []
    predictors = list(dict.fromkeys((one.predictor, one.sms) for one in found))
    for index, (predictor, sms) in enumerate(predictors):
        ours = [one for one in found if (one.predictor, one.sms) == (predictor, sms)][:SHOWN]
        shown += ours
        plot.add_scatter(
            x=[one.size for one in ours],
            y=[one.reused_tokens + 1 for one in ours],
            mode="markers",
            name=f"{predictor}, {sms} SMs",
            marker={
                "color": colours.partition_colour(index, len(predictors)),
                "symbol": index % 8,
                "size": [float(np.clip(6.0 + 400.0 * one.error, 6.0, 30.0)) for one in ours],
            },
            hovertext=[f"expected error {one.error:.1%}" for one in ours],
        )
    plot.update_xaxes(**log_axis([one.size for one in shown], "new tokens, or requests that decode"))
    plot.update_yaxes(**log_axis([one.reused_tokens + 1 for one in shown], "reused tokens"))
    return Figure(
        title="Where to measure next",
        caption="The shapes that the samples say least about; the larger the mark, the larger the error to "
        "expect there.",
        plot=plot,
    )
