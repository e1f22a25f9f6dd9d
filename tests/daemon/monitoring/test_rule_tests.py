"""What promtool is fed with is what a daemon exports; every alert is made to fire and not to fire by it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml

from pdmuxd.controlplane.events.messages import AlarmKind
from pdmuxd.controlplane.events.outcomes import Outcome
from pdmuxd.controlplane.telemetry.drift import Work
from pdmuxd.controlplane.telemetry.slo_violations import Cause
from pdmuxd.daemon.gateway.exchange import End
from pdmuxd.daemon.metrics.counted import LENGTHS, LONGEST
from pdmuxd.daemon.metrics.definitions import ABORT_CAUSES, DEFINITIONS
from pdmuxd.daemon.monitoring.files import rules

CASES = yaml.safe_load(Path(__file__).with_name("rules.test.yml").read_text())["tests"]
ALERTS = [
    rule["alert"] for group in yaml.safe_load(rules())["groups"] for rule in group["rules"] if "alert" in rule
]
LOOKS = [look for case in CASES for look in case.get("alert_rule_test", ())]
FED = sorted({series["series"] for case in CASES for series in case["input_series"]})
OF_SERIES = {name: it for it in DEFINITIONS.values() for name in it.series}
VALUES = {
    ("pdmuxd_alarm", "kind"): set(get_args(AlarmKind)),
    ("pdmuxd_gateway_aborts_total", "cause"): set(ABORT_CAUSES),
    ("pdmuxd_incident", "cause"): set(Cause),
    ("pdmuxd_outcomes_total", "outcome"): set(Outcome),
    ("pdmuxd_settings_version", "kind"): {"wanted", "acked"},
    ("pdmuxd_prediction_ratio", "work"): set(get_args(Work)),
    ("pdmuxd_prediction_ratio", "quantile"): {"0.5", "0.9"},
    ("pdmuxd_prediction_samples", "work"): set(get_args(Work)),
    ("pdmuxd_engine_sm_seconds_total", "phase"): {"prefill", "decode"},
    ("pdmuxd_engine_sm_busy_ratio", "phase"): {"prefill", "decode"},
    ("pdmuxd_http_connections", "listener"): {"data", "admin"},
    ("pdmuxd_http_connections_limit", "listener"): {"data", "admin"},
    ("pdmuxd_delivered_ttft_by_length_met_total", "new_tokens"): {*dict(LENGTHS), LONGEST},
    ("pdmuxd_delivered_ttft_by_length_requests_total", "new_tokens"): {*dict(LENGTHS), LONGEST},
}
"""Of labels whose values the code knows: those of tenants, paths, errors and SM counts are anybody's."""
ANYBODYS = {"job", "instance", "tenant", "path", "status", "sms", "le"}


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_is_made_to_fire_and_not_to_fire(alert: str) -> None:
    fires = {bool(look["exp_alerts"]) for look in LOOKS if look["alertname"] == alert}
    assert fires == {True, False}


def test_no_look_is_at_an_alert_that_does_not_exist() -> None:
    assert {look["alertname"] for look in LOOKS} == set(ALERTS)


@pytest.mark.parametrize("series", FED)
def test_a_series_that_is_fed_is_one_that_a_daemon_exports(series: str) -> None:
    name, labels = series.partition("{")[0], dict(re.findall(r'(\w+)="([^"]*)"', series))
    if name == "up":  # Prometheus's own
        assert labels.keys() == {"job", "instance"}
        return
    it = OF_SERIES[name]
    buckets = {"le"} if name.endswith("_bucket") else set()
    assert labels.keys() == {"job", "instance", *it.labels, *buckets}
    for label in labels.keys() - ANYBODYS:
        if (name, label) != ("pdmuxd_refusals_total", "cause"):
            assert labels[label] in VALUES[name, label], label


def test_every_end_but_a_complete_one_is_a_cause_that_is_counted_from_the_start() -> None:
    assert set(ABORT_CAUSES) == set(End) - {End.COMPLETE}
