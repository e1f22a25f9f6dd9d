"""Which requests are traced: a share of all, by the trace's id, so that every service on the way agrees."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.context import Context, get_value, set_value
from opentelemetry.sdk.trace.sampling import ParentBased, Sampler, SamplingResult, TraceIdRatioBased
from opentelemetry.trace import Link, SpanKind, TraceState
from opentelemetry.util.types import Attributes

_FOLLOWS = "pdmuxd-follows-parent"


def following(context: Context) -> Context:
    """A context whose span decides for those below it: ours, or that of a trusted peer."""
    return set_value(_FOLLOWS, True, context)


class PeerSampler(Sampler):
    """The caller's decision where `following` says so, else the ratio.

    Otherwise any client could have all of its requests traced, or none.
    """

    def __init__(self, ratio: float) -> None:
        self._by_ratio = TraceIdRatioBased(ratio)
        self._by_parent = ParentBased(self._by_ratio)

    def should_sample(
        self,
        parent_context: Context | None,
        trace_id: int,
        name: str,
        kind: SpanKind | None = None,
        attributes: Attributes = None,
        links: Sequence[Link] | None = None,
        trace_state: TraceState | None = None,
    ) -> SamplingResult:
        """Sample, as the Sampler of OpenTelemetry asks."""
        follows = parent_context is not None and get_value(_FOLLOWS, parent_context)
        sampler = self._by_parent if follows else self._by_ratio
        return sampler.should_sample(parent_context, trace_id, name, kind, attributes, links, trace_state)

    def get_description(self) -> str:
        return f"PeerSampler{{{self._by_ratio.get_description()}}}"
