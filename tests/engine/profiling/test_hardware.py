"""The fit of the device to what no such device could do."""

from __future__ import annotations

from dataclasses import replace

from profiling import decode_samples, prefill_samples, target_of

from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling.hardware import fit_hardware

PRIOR = target_of(load_profile("h200-llama-8b"))
TINY = replace(
    PRIOR.model, layers=4, hidden=256, intermediate=512, heads=4, kv_heads=2, head_dim=64, vocab=512
)


def test_a_device_is_found_when_work_takes_as_long_on_any_number_of_sms() -> None:
    """As on the CPU's stand-in; on the way there the fit asks for rates that are no numbers."""
    samples = [
        sample
        for sms in (20, 64, 132)
        for sample in (
            *prefill_samples(lambda shape: 0.001 + 0.0001 * shape.new_tokens, sms=sms),
            *decode_samples(lambda _: 0.001, sms=sms),
        )
    ]
    found = fit_hardware(samples, replace(PRIOR.prior, model=TINY))
    assert found.device.flops > 0.0
    assert found.errors.p50 < 1.0
