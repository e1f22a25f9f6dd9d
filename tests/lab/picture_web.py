"""A picture of the pages: the overview of a real daemon under overload, in a headless Chromium.

.venv/bin/python tests/lab picture-web docs/images
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from chromium import chromium
from daemon_process import Daemon
from picture_console import CHAT, DOCUMENTS, tenant
from steady_load import steady_load

WARM_UP_S = 240.0
SIZE = (1280, 1000)
LOGIN = "document.querySelector('#token').value = '{token}'; document.forms[0].submit()"
LIVE = "document.querySelectorAll('tr[data-tenant]').length > 1 && !!document.querySelector('#picture svg')"


def main(folder: Path) -> None:
    """Start a daemon, load it, look at it."""
    with tempfile.TemporaryDirectory() as place:
        daemon = Daemon(Path(place), settings=["engine.policy=muxwise"])
        try:
            token = (Path(place) / ".pdmuxd" / "admin-token").read_text().strip()
            chat = tenant(daemon.admin_url, token, "chat", CHAT)
            documents = tenant(daemon.admin_url, token, "documents", DOCUMENTS)
            with (
                steady_load(daemon.data_url, chat, daemon.model, users=2, prompt_words=100, tokens=100),
                steady_load(daemon.data_url, documents, daemon.model, users=6, prompt_words=2500, tokens=60),
            ):
                time.sleep(WARM_UP_S)
                asyncio.run(shoot(daemon.admin_url, token, Path(place), folder / "web-overview.png"))
        finally:
            daemon.stop()


async def shoot(url: str, token: str, place: Path, file: Path) -> None:
    """Log in, wait for what is live, and keep what is seen."""
    async with chromium(place / "browser", size=SIZE) as page:
        await page.open(f"{url}/ui")
        await page.until("!!document.querySelector('#token')")
        await page.run(LOGIN.format(token=token))
        await page.until(LIVE)
        width, height = SIZE
        await page.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        await asyncio.sleep(2.0)  # the strip comes to its place
        await page.picture(file)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
