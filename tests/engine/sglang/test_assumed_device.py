"""What an engine believes of a GPU that nobody measured."""

import pytest

from pdmuxd.engine.core.partitions import SmRules
from pdmuxd.engine.profiling.shipped_profiles import shipped_profiles
from pdmuxd.engine.sglang.assumed_device import assumed_device, from_data_sheet

RULES = SmRules(total_sms=132, min_sms=8, multiple_sms=8)


def test_an_h200_has_the_rates_that_were_measured_on_one() -> None:
    (measured,) = [one for one in shipped_profiles() if one.name == "h200-llama-8b"]
    assumed = assumed_device("NVIDIA H200", RULES)
    for rate in ("flops", "bytes_per_s", "bandwidth_curvature", "compute_curvature", "serial_ratio"):
        assert getattr(assumed, rate) == pytest.approx(getattr(measured.device, rate), rel=0.02), rate


def test_the_assumed_rates_are_below_the_data_sheets_for_every_gpu() -> None:
    for name in ("NVIDIA H200", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB", "another"):
        assumed = assumed_device(name, RULES)
        assert assumed.flops < 989e12
        assert assumed.bytes_per_s < 4.8e12
        assert (assumed.name, assumed.total_sms) == (name, 132)


def test_a_gpu_that_nobody_measured_has_its_data_sheets_rates() -> None:
    h100 = assumed_device("NVIDIA H100 80GB HBM3", RULES)
    assert h100 == from_data_sheet("NVIDIA H100 80GB HBM3", RULES)
    assert assumed_device("an unknown one", RULES).flops == assumed_device("NVIDIA A100", RULES).flops
