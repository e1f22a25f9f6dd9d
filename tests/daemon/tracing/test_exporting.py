"""What a collector that is gone, silent or slow costs: spans, which are counted, and one line in the log."""

from __future__ import annotations

import io
import logging

import pytest
import structlog
from daemon_process import wait_until

from pdmuxd.daemon.process.logging import configure_logging
from pdmuxd.daemon.tracing import exporting


@pytest.fixture
def short(monkeypatch):
    """Nothing is waited for."""
    monkeypatch.setattr(exporting, "EXPORT_TIMEOUT_S", 0.05)
    monkeypatch.setattr(exporting, "CLOSE_WITHIN_S", 0.05)


@pytest.fixture
def logged():
    """What the daemon's log says."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    stream = io.StringIO()
    configure_logging("debug", "console", stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


async def test_what_does_not_fit_is_dropped_and_counted_when_the_collector_is_silent(
    make_tracer, serve, collector, counts, short
):
    collector.silent = True
    tracer = make_tracer(queued=16)
    for i in range(200):
        serve(tracer, rid=f"{i:032x}")
    await tracer.close()
    assert collector.spans == []
    assert counts["exported"] == 0
    assert counts["queue_full"] > 0
    assert counts["queue_full"] + counts["export_failed"] <= 800


async def test_every_span_is_counted_once_when_the_collector_is_gone(
    make_tracer, serve, collector, counts, short
):
    collector.refuses = True
    tracer = make_tracer(queued=16)
    for i in range(100):
        serve(tracer, rid=f"{i:032x}")
    wait_until(lambda: counts["queue_full"] + counts["export_failed"] == 400)
    assert counts["export_failed"] > 0


async def test_one_line_is_logged_when_batches_fail_again_and_again(
    make_tracer, serve, collector, counts, logged, short
):
    collector.refuses = True
    tracer = make_tracer(queued=16)
    for i in range(3):
        serve(tracer, rid=f"{i:032x}")
        wait_until(lambda: counts["export_failed"] == 4 * (i + 1))  # noqa: B023 - called at once
    collector.refuses = False
    serve(tracer, rid="f" * 32)
    wait_until(lambda: counts["exported"] == 4)
    wait_until(lambda: "takes spans again" in logged.getvalue())  # it is said after it is counted
    said = [line for line in logged.getvalue().splitlines() if "urllib3" not in line]
    assert ["takes no spans" in said[0], "takes spans again" in said[1]] == [True, True], said
    assert len(said) == 2
