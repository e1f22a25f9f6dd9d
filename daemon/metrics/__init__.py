"""What Prometheus sees: every metric is defined once, in `definitions.py`."""

from __future__ import annotations

from pdmuxd.daemon.metrics.counted import CONTENT_TYPE, OTHER_PATH, Metrics

__all__ = ["CONTENT_TYPE", "OTHER_PATH", "Metrics"]
