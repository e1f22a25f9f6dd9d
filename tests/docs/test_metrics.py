"""docs/operations.md explains every metric, and no other."""

from __future__ import annotations

import re
from pathlib import Path

from telemetry_feeds import HandClock, telemetry

from pdmuxd.controlplane.status import EngineStatus
from pdmuxd.daemon.httpd.metrics import HttpCollector
from pdmuxd.daemon.metrics import Metrics
from pdmuxd.daemon.telemetry_metrics import TelemetryCollector
from pdmuxd.engine.link.messages import EngineStats

TEXT = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()
IN_ONE_SENTENCE = ("pdmuxd_build", "pdmuxd_process_")


def test_every_metric_is_explained_when_it_is_served() -> None:
    metrics = Metrics()
    stats = EngineStats(**dict.fromkeys(EngineStats.__struct_fields__, 0) | {"policy": "auto"})
    metrics.collect_engine(lambda: EngineStatus(state="serving", since_s=0.0, stats=stats))
    metrics.collect_in_flight(dict)
    metrics.registry.register(TelemetryCollector(telemetry(HandClock())))
    metrics.registry.register(HttpCollector(()))
    served = {
        family.name + ("_total" if family.type == "counter" else "")
        for family in metrics.registry.collect()
        if not family.name.startswith(IN_ONE_SENTENCE)
    }
    section = re.search(r"^## Metrics\n(.*?)^## ", TEXT, re.MULTILINE | re.DOTALL)
    assert section
    names = re.findall(r"`(\w+)`", "\n".join(re.findall(r"^\| (`.*?) \|", section[1], re.MULTILINE)))
    assert {f"pdmuxd_engine{name}" if name.startswith("_") else name for name in names} == served
