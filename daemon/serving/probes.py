"""What machines ask the admin address without a token: whether it is alive, whether it is ready, and its
metrics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from fastapi import FastAPI, Response

from pdmuxd.daemon.metrics import CONTENT_TYPE, Metrics


def add_probes(
    app: FastAPI,
    metrics: Metrics,
    not_ready_because: Callable[[], str | None],
    degraded_by: Callable[[], Iterable[str]] = tuple,
) -> None:
    """Add `/healthz`, `/readyz` and `/metrics`; asynchronous, so that busy worker threads delay none."""
    # Writing 10,000 lines takes 80 ms: in the event loop that would be a gap in every stream of tokens.
    renderer = ThreadPoolExecutor(1, thread_name_prefix="metrics")

    @app.get("/healthz", tags=["probes"])
    async def is_alive() -> dict[str, str]:
        """Answer as long as the daemon runs, whatever its engine does."""
        return {"status": "ok"}

    @app.get("/readyz", tags=["probes"], responses={503: {"description": "The body says why not."}})
    async def is_ready(response: Response) -> dict[str, str | list[str]]:
        """Answer 200 while the engine serves under the newest settings, else 503.

        What is wrong with the daemon itself while it serves is named in `degraded`, by its alarms.
        """
        reason = not_ready_because()
        if reason is None:
            degraded = sorted(degraded_by())
            return {"status": "ready", "degraded": degraded} if degraded else {"status": "ready"}
        response.status_code = 503
        return {"status": "not ready", "reason": reason}

    @app.get("/metrics", tags=["probes"], response_class=Response)
    async def show_metrics() -> Response:
        """Show all metrics in Prometheus's text format."""
        text = await asyncio.get_running_loop().run_in_executor(renderer, metrics.render)
        return Response(text, media_type=CONTENT_TYPE)
