"""The event stream over HTTP."""

from __future__ import annotations

from typing import Annotated, get_args

from fastapi import APIRouter, Header, Query, Request
from starlette.responses import Response, StreamingResponse

from pdmuxd.controlplane.api.auth import caller_of
from pdmuxd.controlplane.api.parameters import like
from pdmuxd.controlplane.api.problems import documented, problem
from pdmuxd.controlplane.api.routing import admin_router
from pdmuxd.controlplane.events.buffer import EventId
from pdmuxd.controlplane.events.follow import Subscription, follow
from pdmuxd.controlplane.events.messages import EventType
from pdmuxd.controlplane.telemetry.telemetry import Telemetry
from pdmuxd.engine.core.errors import InvalidValueError

MAX_CLIENTS = 64
EVENT_STREAM = "text/event-stream"
_KNOWN: tuple[str, ...] = get_args(EventType)
_ONE = f" *({'|'.join(_KNOWN)}) *"
_TYPES_PATTERN = f"^{_ONE}(,{_ONE})*$"
_ID_PATTERN = r"^([0-9]{1,20}-[0-9]{1,18})?$"


def event_routes(telemetry: Telemetry) -> APIRouter:
    """`/events`."""
    router = admin_router(tags=["events"])

    # Asynchronous: a stream must not hold one of the few worker threads.
    @router.get(
        "/events",
        response_class=StreamingResponse,
        responses={**documented(503), 200: {"content": {EVENT_STREAM: {}}, "description": "The stream."}},
    )
    async def stream_events(
        request: Request,
        types: Annotated[
            Annotated[str, like(_TYPES_PATTERN)] | None,
            Query(description=f"Some of {','.join(_KNOWN)}, with commas between; all if absent."),
        ] = None,
        after: Annotated[
            Annotated[str, like(_ID_PATTERN)] | None,
            Query(description="As Last-Event-ID, for clients that cannot set a header."),
        ] = None,
        last_event_id: Annotated[
            Annotated[str, like(_ID_PATTERN)] | None,
            Header(description="Go on after this event; without it the stream begins now."),
        ] = None,
    ) -> Response:
        """Stream events: the engine's state, its load, decisions, requests, settings and alarms."""
        # Both are read, so that a wrong one is told whichever holds.
        places = _place("Last-Event-ID", last_event_id), _place("after", after)
        place = places[0] or places[1]
        wanted = _types(types)
        if telemetry.events.clients >= MAX_CLIENTS:
            detail = f"{MAX_CLIENTS} clients follow the events already, the limit"
            return problem(503, "too-many-clients", detail, headers={"Retry-After": "5"})
        role = caller_of(request.scope).role
        subscription = Subscription(hello=lambda: telemetry.hello(role), after=place, types=wanted)
        return StreamingResponse(
            follow(telemetry.events, subscription, clock=telemetry.clock),
            media_type=EVENT_STREAM,
            # Proxies that buffer would hold events back.
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
        )

    return router


def _place(field: str, text: str | None) -> EventId | None:
    if not text:
        return None
    place = EventId.parse(text)
    if place is None:
        raise InvalidValueError(
            field,
            f"{field} is {text[:40]!r}; allowed are ids that this stream sent, such as 1795264441123-57",
        )
    return place


def _types(text: str | None) -> frozenset[EventType] | None:
    if text is None:
        return None
    names = {name.strip() for name in text.split(",")}
    unknown = sorted(names - set(_KNOWN))
    if unknown:
        raise InvalidValueError(
            "types", f"types has {unknown[0][:40]!r}; allowed are {', '.join(_KNOWN)}, with commas between"
        )
    return frozenset(known for known in get_args(EventType) if known in names)
