"""How well a profile predicts shapes that it has not seen: what `measure` prints at its end, or

python tests/lab unseen MODEL.profile.json.gz MODEL.unseen.json.gz
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from gpu_servers.options import new_parser
from pdmuxd.daemon.profiling.check import unseen_errors
from pdmuxd.engine.link.predictors import contention_guard, latency_model
from pdmuxd.engine.profiling.document import MeasuredProfile, read_file
from pdmuxd.engine.profiling.measurement import Sample


def report(profile: MeasuredProfile, checks: Sequence[Sample]) -> None:
    """Print the errors by cross-validation, then those on unseen shapes and pairs."""
    print(f"profile: {len(profile.samples)} samples in {profile.provenance.took_s:.0f} s")
    for fit in profile.fits:
        e = fit.errors
        print(
            f"  {fit.predictor} {fit.sms}: {fit.samples} samples, {fit.outliers} outliers, "
            f"held-out p50 {e.p50:.1%} p90 {e.p90:.1%} max {e.max:.1%}"
        )
    print("  left out:", "; ".join(profile.left_out) or "nothing", "; guard:", profile.guard)
    predictors = profile.predictors(1)
    model = latency_model(predictors, profile.roofline)
    for name, signed in sorted(unseen_errors(profile, checks).items()):
        values = np.abs(signed)
        p50, p90 = np.percentile(values, (50, 90))
        print(f"  unseen {name}: {len(values)} shapes, p50 {p50:.1%} p90 {p90:.1%} max {max(values):.1%}")
    guard = contention_guard(predictors)
    ratios: list[float] = []
    over: list[float] = []
    for sample in checks:
        point = sample.point
        if point.mode == "colocated":
            solo_s = model.decode_s(point.decode_shape, point.decode_sms)
            slowdown = (sample.decode_high_s or sample.seconds) / solo_s
            bound = guard.ratio(point.decode_sms, point.prefill_shape, point.decode_shape)
            ratios.append(slowdown)
            over.append(bound / max(1.0, slowdown))
    if ratios:
        cuts = np.percentile(ratios, (10, 50, 90, 99))
        exceeded = sum(ratio < 1.0 for ratio in over) / len(over)
        print(
            f"  unseen pairs: {len(ratios)}, slowdown p10 {cuts[0]:.2f} p50 {cuts[1]:.2f} p90 {cuts[2]:.2f} "
            f"p99 {cuts[3]:.2f}; above the guard {exceeded:.1%}, mean bound / slowdown {np.mean(over):.2f}"
        )


def main(argv: list[str] | None = None) -> int:
    """Print the table of a profile and samples that were kept, as it predicts them."""
    parser = new_parser("unseen", __doc__)
    parser.add_argument("profile", type=Path)
    parser.add_argument("unseen", type=Path, help="samples, gzipped")
    options = parser.parse_args(argv)
    checks = msgspec.json.decode(gzip.decompress(options.unseen.read_bytes()), type=list[Sample])
    report(read_file(options.profile), checks)
    return 0
