"""Pictures of the pages of a real daemon under overload, in a headless Chromium: each page at three widths.

.venv/bin/python tests/lab picture-web FOLDER [SECONDS] keeps them; docs/images has web-overview.png of them.
SECONDS is how long there is load before (240).
"""

from __future__ import annotations

import asyncio
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

from chromium import chromium
from daemon_process import Daemon
from picture_console import CHAT, DOCUMENTS, tenant
from steady_load import steady_load
from ui_pages import LOGIN, WIDTHS, every_path, go, resize

WARM_UP_S = 240.0
SIZE = (1280, 1000)
TALLEST = 6000
"""Pixels of a picture: a longer page is cut."""
LIVE = "document.querySelectorAll('tr[data-tenant]').length > 1 && !!document.querySelector('#picture svg')"


def main(folder: Path, warm_up_s: float) -> None:
    """Start a daemon, load it, look at it."""
    folder.mkdir(parents=True, exist_ok=True)
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
                time.sleep(warm_up_s)
                asyncio.run(shoot(daemon, token, Path(place), folder))
        finally:
            daemon.stop()


async def shoot(daemon: Daemon, token: str, place: Path, folder: Path) -> None:
    """Log in, wait for what is live, and keep what is seen."""
    paths = [path.replace("default", "chat") for path in every_path(daemon.admin)]
    async with chromium(place / "browser", size=SIZE) as page:
        await page.open(f"{daemon.admin_url}/ui")
        await page.until("!!document.querySelector('#token')")
        await page.run(LOGIN.format(token=token))
        await page.until(LIVE)
        await resize(page, *SIZE)
        await asyncio.sleep(2.0)  # the strip comes to its place
        await page.picture(folder / "web-overview.png")
        for path in paths:
            await go(page, daemon.admin_url, path)
            name = re.sub(r"[^a-z0-9]+", "-", path.removeprefix("/ui/").lower())[:40].strip("-")
            for width in WIDTHS:
                await resize(page, width)
                height = await page.run("document.documentElement.scrollHeight")
                await resize(page, width, min(TALLEST, max(900, height)))
                await page.picture(folder / f"{name}-{width}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else WARM_UP_S)
