"""The settings of tracing."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from pdmuxd.daemon.settings.values import Number, WholeNumber, not_allowed

_ALLOWED = "an http or https URL of an OTLP/HTTP collector, such as http://127.0.0.1:4318"
_SIGNAL_PATH = "/v1/traces"


def check_endpoint(url: str) -> str:
    """Accept a URL with a host and no credentials; without a path it gets that of traces."""
    try:
        parts = urlsplit(url)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is no number, brackets that do not close
        is_url = False
    if not is_url or not url.isascii() or not url.isprintable() or " " in url:
        raise not_allowed(f"allowed is {_ALLOWED}")
    if parts.username is not None or parts.query or parts.fragment:
        raise not_allowed(f"allowed is {_ALLOWED}, without a user, query or fragment")
    return url if parts.path.strip("/") else url.rstrip("/") + _SIGNAL_PATH


class TracingSection(BaseModel):
    """OpenTelemetry spans of requests; needs `pip install 'pdmuxd[otel]'`."""

    model_config = ConfigDict(extra="forbid", frozen=True, validate_default=True, allow_inf_nan=False)

    endpoint: Annotated[str, AfterValidator(check_endpoint)] | None = Field(
        None,
        description="Collector that gets the spans, by OTLP over HTTP. Unset: nothing is traced.",
        json_schema_extra={"allowed": _ALLOWED},
    )
    sample_ratio: Annotated[Number, Field(ge=0, le=1)] = Field(
        1.0, description="Share of requests that is traced, by the trace's id."
    )
    max_queued_spans: Annotated[WholeNumber, Field(ge=16, le=1_000_000)] = Field(
        8192, description="Spans that wait for the collector; more are dropped and counted."
    )
