"""How soon a page is seen with 10,000 tenants, 100,000 keys and 500 streams, in a headless Chromium.

`first-paint [LOADS]` prints a line for each page: the first contentful paint, and when the first byte came,
in milliseconds since the navigation began (least, median, most of LOADS, 7). The browser shares the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

import uvicorn
from chromium import Page, chromium
from full_node import full_node, name_of
from stores import ADMIN_TOKEN
from ui_pages import LOGIN, go

PAGES = (
    "/ui/overview",
    "/ui/tenants",
    f"/ui/tenants/{name_of(1)}",
    "/ui/incidents",
    "/ui/requests",
    "/ui/policy",
)
PAINTED = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
FIRST_BYTE = "performance.getEntriesByType('navigation')[0].responseStart"


async def look(page: Page, url: str, path: str, loads: int) -> str:
    """One line, of so many loads."""
    painted, answered = [], []
    for _ in range(loads):
        await go(page, url, path)
        painted.append(await page.until(PAINTED))
        answered.append(await page.run(FIRST_BYTE))
    return f"{path:28} painted {_spread(painted)}   first byte {_spread(answered)}"


def _spread(found: list[float]) -> str:
    return f"{min(found):5.0f} {statistics.median(found):5.0f} {max(found):5.0f}"


@contextlib.asynccontextmanager
async def served(app: object):
    """The application on a port of its own; its address."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="critical", lifespan="off"))
    running = asyncio.create_task(server.serve())
    while not server.started:  # noqa: ASYNC110 - uvicorn tells nobody
        await asyncio.sleep(0.05)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    server.should_exit = True
    await running


async def main(loads: int) -> None:
    """See the top."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        async with (
            full_node(place) as node,
            served(node.parts.admin.app) as url,
            chromium(place / "browser", size=(1280, 900)) as page,
        ):
            await page.open(f"{url}/ui")
            await page.until("!!document.querySelector('#token')")
            await page.run(LOGIN.format(token=ADMIN_TOKEN))
            await page.until("!document.querySelector('#token') && document.readyState == 'complete'")
            for path in PAGES:
                print(await look(page, url, path, loads), flush=True)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 7))
