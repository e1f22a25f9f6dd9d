"""Whether there is a tracer, and what stops the start instead."""

from importlib.util import find_spec

import pytest

from pdmuxd.daemon.bus import EventBus
from pdmuxd.daemon.gateway.tracing import NoTracer
from pdmuxd.daemon.settings.tracing import TracingSection
from pdmuxd.daemon.tracing import building
from pdmuxd.daemon.tracing.building import Tracing
from pdmuxd.engine.core.errors import SettingsError


def make(**settings):
    return Tracing(
        TracingSection(**settings), count=lambda result, spans: None, follows_parent=lambda _: False
    )


def test_nothing_is_traced_when_no_endpoint_is_set():
    tracing = make()
    tracing.connect(EventBus())
    assert isinstance(tracing.tracer, NoTracer)


@pytest.mark.parametrize("missing", ["opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"])
def test_the_start_is_refused_when_the_packages_are_missing(monkeypatch, missing):
    monkeypatch.setattr(building, "find_spec", lambda name: None if name == missing else find_spec(name))
    with pytest.raises(SettingsError, match=r"pip install 'pdmuxd\[otel\]'"):
        make(endpoint="http://127.0.0.1:1")


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("http://collector:4318", "http://collector:4318/v1/traces"),
        ("http://collector:4318/", "http://collector:4318/v1/traces"),
        ("https://[::1]/otlp/v1/traces", "https://[::1]/otlp/v1/traces"),
    ],
)
def test_the_path_of_traces_is_added_when_the_endpoint_has_none(given, used):
    assert TracingSection(endpoint=given).endpoint == used
