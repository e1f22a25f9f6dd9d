"""The second stage: the data plane, which serves clients, and the connections of both planes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.controlplane.tenants.credentials import digest
from pdmuxd.daemon.building.node import Node
from pdmuxd.daemon.duties.last_used import Uses
from pdmuxd.daemon.gateway.app import Gateway
from pdmuxd.daemon.gateway.bounds import RequestBounds
from pdmuxd.daemon.gateway.forecast import FirstTokens
from pdmuxd.daemon.gateway.forwarding import EngineTimes
from pdmuxd.daemon.gateway.intake import BodyLimits
from pdmuxd.daemon.httpd.listeners import Listeners
from pdmuxd.daemon.httpd.trusted_peers import TrustedPeers
from pdmuxd.daemon.metrics.garbage import garbage_holder
from pdmuxd.daemon.serving.node_load import node_load
from pdmuxd.daemon.serving.reader_token import ReaderToken
from pdmuxd.daemon.settings import Settings
from pdmuxd.daemon.tracing.building import Tracing
from pdmuxd.daemon.traffic.prefixes import PrefixHasher
from pdmuxd.engine.link.garbage import GarbageHolder


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlane:
    """Nothing of it runs yet."""

    listeners: Listeners
    gateway: Gateway
    first_tokens: FirstTokens
    tracing: Tracing
    uses: Uses
    garbage: GarbageHolder


def build_data_plane(
    settings: Settings, control_plane: ControlPlane, node: Node, *, admin_token: str
) -> DataPlane:
    """Build it without an engine; `admin_token`, the operator's, is known to its connections."""
    reader, own = ReaderToken(settings.resolved_reader_token_file).sha256, digest(admin_token)
    listeners = Listeners.of(
        settings,
        knows_key=lambda secret: control_plane.directory.knows_key(secret),
        knows_token=lambda secret: (
            digest(secret) in (own, reader())
            or control_plane.directory.find_admin_token(secret) is not None
            or control_plane.directory.knows_key(secret)
        ),
    )
    metrics, supervisor, admission = node.metrics, node.supervisor, node.admission
    metrics.registry.register(listeners.collector())
    trusted = TrustedPeers(settings.data.trusted_peers)
    tracing = Tracing(settings.tracing, count=metrics.trace_spans, follows_parent=trusted.sent)
    uses, first_tokens = Uses(control_plane), FirstTokens()
    gateway = Gateway(
        directory=control_plane.directory,
        limits=body_limits(settings),
        admission=admission,
        times=engine_times(settings),
        auth_failures=listeners.data_failures,
        metrics=metrics,
        observer=node.telemetry,
        name_prefixes=PrefixHasher().names if settings.admin.traffic_max_bytes else None,
        key_used=uses.key,
        load=partial(node_load, node.telemetry),
        tells_load=settings.data.load_metrics,
        limiter=node.limiter,
        expected=node.telemetry.expected,
        first_tokens=first_tokens,
        tracer=tracing.tracer,
        trusted=trusted,
        quarantine=node.quarantine,
    )
    garbage = garbage_holder(
        lambda: admission.in_flight == 0 and not listeners.many_came(), lambda: supervisor.link, metrics
    )
    return DataPlane(
        listeners=listeners,
        gateway=gateway,
        first_tokens=first_tokens,
        tracing=tracing,
        uses=uses,
        garbage=garbage,
    )


def body_limits(settings: Settings) -> BodyLimits:
    """What a body may be."""
    data = settings.data
    bounds = RequestBounds(
        max_outputs=data.max_outputs,
        max_stops=data.max_stops,
        max_prompt_tokens=data.max_prompt_tokens,
        max_body_values=data.max_body_values,
        max_logprobs=data.max_logprobs,
    )
    return BodyLimits(max_bytes=data.max_body_bytes, bounds=bounds, timeout_s=settings.http.body_timeout_s)


def engine_times(settings: Settings) -> EngineTimes:
    """How long the engine is waited for."""
    data = settings.data
    return EngineTimes(
        first_byte_s=data.first_byte_timeout_s,
        wait_s=data.engine_wait_s,
        quarantine_s=data.quarantine_s,
    )
