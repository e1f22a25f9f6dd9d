from __future__ import annotations

from dataclasses import replace

import msgspec
from replays import document, plan, replayed

from pdmuxd.daemon.replay.notes import notes


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
