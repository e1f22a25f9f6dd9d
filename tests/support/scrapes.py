"""What a scrape of /metrics shows."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from pdmuxd.daemon.metrics import Metrics

Labels = tuple[tuple[str, str], ...]


def samples(metrics: Metrics) -> dict[tuple[str, Labels], float]:
    """By name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(metrics.render().decode())
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return samples(metrics)[name, tuple(sorted(labels.items()))]
