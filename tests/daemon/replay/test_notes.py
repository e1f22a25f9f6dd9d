from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from replays import document, plan, replayed

from pdmuxd.daemon.replay.notes import notes, profile_notes
from pdmuxd.engine.emulator.noise import DeviceNoise, KindBias, WorkKind


def test_everything_that_changes_the_numbers_is_said_when_it_was_done() -> None:
    of = plan(10, kv_capacity_tokens=1500)
    of = replace(of, trace=replace(of.trace, rate_scale=0.5, dropped_too_long=3, clipped=1234))
    said = " ".join(notes(document(of, replayed(of, "muxwise"))))
    assert "3-second ticks" in said
    assert "divided by 0.5" in said
    assert "3 requests were left out" in said
    assert "1,234 requests were shortened" in said
    assert "derived, not measured" in said
    assert "failed or never ended" in said


def test_nothing_is_said_when_there_is_nothing_to_say() -> None:
    of = plan(3)
    of = replace(of, trace=replace(of.trace, tick_s=0.0))
    doc = document(of, replayed(of, "muxwise"))
    measured = msgspec.structs.replace(
        doc, profile=msgspec.structs.replace(doc.profile, provenance="measured: run 1")
    )
    assert notes(measured) == []


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (DeviceNoise(), []),
        (
            DeviceNoise(stall_ratio=0.001, stall_s=0.022),
            ["On the emulated device 0.1% of work stalls for 22 ms."],
        ),
        (
            DeviceNoise(bias_ratio=0.08, scatter_ratio=0.06, stall_ratio=0.003),
            ["On the emulated device work takes +8%, work scatters by 6%, 0.3% of work stalls for 20 ms."],
        ),
        (
            DeviceNoise(stall_s=0.03, stall_every_s=1.6),
            ["The emulated device stands still for 30 ms every 1.6 s."],
        ),
        (
            DeviceNoise(by_kind=(KindBias(kind=WorkKind.FUSED, bias_ratio=0.2, from_size=512),)),
            ["Emulated fused work of 512 new prompt tokens and more takes +20%."],
        ),
    ],
)
def test_only_the_noise_that_the_device_has_is_said(noise: DeviceNoise, said: list[str]) -> None:
    of = plan(3)
    profile = msgspec.structs.replace(
        document(of, replayed(of, "muxwise")).profile, provenance="measured: run 1", noise=noise
    )
    assert list(profile_notes(profile)) == said
