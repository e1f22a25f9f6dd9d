"""The tracer that the settings ask for."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib.util import find_spec

from pdmuxd.daemon.bus import EventBus
from pdmuxd.daemon.gateway.tracing import NoTracer, Tracer
from pdmuxd.daemon.httpd.asgi import Scope
from pdmuxd.daemon.settings.tracing import TracingSection
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.link.messages import RequestRecord

_EXTRA = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")


class Tracing:
    """The tracer, its end, and nothing of OpenTelemetry unless an endpoint is set."""

    def __init__(
        self,
        settings: TracingSection,
        *,
        count: Callable[[str, int], None],
        follows_parent: Callable[[Scope], bool],
    ) -> None:
        """Raises: SettingsError if the packages are missing."""
        self.tracer: Tracer = NoTracer()
        self._on_record: Callable[[RequestRecord], object] | None = None
        self._close: Callable[[], Awaitable[None]] | None = None
        if settings.endpoint is None:
            return
        check_extra()
        from pdmuxd.daemon.tracing.exporting import BoundedExport, otlp_exporter
        from pdmuxd.daemon.tracing.tracer import SpanTracer

        export = BoundedExport(
            otlp_exporter(settings.endpoint), max_queued_spans=settings.max_queued_spans, count=count
        )
        tracer = SpanTracer(export, sample_ratio=settings.sample_ratio, follows_parent=follows_parent)
        self.tracer, self._on_record, self._close = tracer, tracer.on_record, tracer.close

    def connect(self, bus: EventBus) -> None:
        """Have it told what the engine reports."""
        if self._on_record is not None:
            bus.subscribe(RequestRecord, self._on_record)

    def close_with(self, stack: AsyncExitStack) -> None:
        """What is queued is delivered when `stack` ends."""
        if self._close is not None:
            stack.push_async_callback(self._close)


def check_extra() -> None:
    """Raises: SettingsError if OpenTelemetry's packages are not installed."""
    for name in _EXTRA:
        try:
            is_there = find_spec(name) is not None
        except ModuleNotFoundError:
            is_there = False
        if not is_there:
            raise SettingsError(
                "tracing.endpoint is set, and OpenTelemetry is not installed: pip install 'pdmuxd[otel]'"
            )
