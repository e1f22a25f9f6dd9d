"""The addresses of the pages that are looked at in a browser, and a login there."""

from __future__ import annotations

import json
from typing import Any

from profiling import measured_profile

from pdmuxd.engine.profiling.document import to_json

WIDTHS = (390, 1280, 2560)
PATHS = (
    "/ui/overview",
    "/ui/overview?window=2h",
    "/ui/overview?at=2026-01-31T12:00:00Z",
    "/ui/tenants",
    "/ui/tenants?q=def",
    "/ui/tenants/default",
    "/ui/tenants/default/targets",
    "/ui/tenants/default/requests",
    "/ui/requests?which=missed",
    "/ui/requests?window=30m",
    "/ui/decisions",
    "/ui/decisions?window=30m",
    "/ui/partitions",
    "/ui/partitions?window=30m",
    "/ui/gpu",
    "/ui/gpu?window=30m",
    "/ui/profiles",
    "/ui/policy",
    "/ui/policy?window=30m",
    "/ui/what-if?tbt_ms=30+10",
    "/ui/replays",
    "/ui/incidents",
    "/ui/alarms",
    "/ui/audit",
    "/ui/settings",
    "/ui/settings?window=30m",
    "/ui/tenants/nobody",
)
LOGIN = "document.querySelector('#token').value = '{token}'; document.forms[0].submit()"
LOADED = "location.pathname + location.search == '{path}' && document.readyState == 'complete'"


async def go(page: Any, url: str, path: str) -> None:
    """Open a page, until it is all there."""
    await page.call("Page.navigate", url=url + path)
    await page.until(LOADED.format(path=path))


async def resize(page: Any, width: int, height: int = 900) -> None:
    await page.call(
        "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False
    )


def every_path(admin: Any) -> tuple[str, ...]:
    """All of them, with a request that missed its target, a profile and a replay; `admin` calls REST."""
    missed = admin("GET", "/api/v1/requests?missed=true").json()["requests"][0]["request_id"]
    profile = admin("POST", "/api/v1/profiles", json=json.loads(to_json(measured_profile()))).json()["id"]
    replay = admin("POST", "/api/v1/what-if/replays", json={"variants": [{"rate_scale": 2.0}]}).json()["id"]
    return (*PATHS, f"/ui/requests/{missed}", f"/ui/profiles/{profile}", f"/ui/replays/{replay}")
