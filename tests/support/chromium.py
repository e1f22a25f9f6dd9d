"""A headless Chromium that tests type into, over its own debugging protocol; no driver is needed."""

# ruff: noqa: ASYNC110, ASYNC220, ASYNC240 - one test at a time waits for it, and nothing else runs meanwhile

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60.0


def path() -> str:
    """Chromium; without it the test is skipped and says so."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        pytest.skip("Chromium is not installed: nothing is tried in a browser (apt-get install chromium)")
    return found


class Page:
    """One tab."""

    def __init__(
        self, socket: aiohttp.ClientWebSocketResponse, http: aiohttp.ClientSession, url: str
    ) -> None:
        self._socket = socket
        self._http = http
        self._browser_url = url
        self._calls = 0
        self.requested: list[str] = []
        """Every address that the page asked for."""
        self.errors: list[str] = []

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._calls += 1
        await self._socket.send_json({"id": self._calls, "method": method, "params": params})
        while True:
            answer = await asyncio.wait_for(self._socket.receive_json(), PATIENCE_S)
            if answer.get("id") == self._calls:
                assert "error" not in answer, answer
                return answer["result"]
            self._notice(answer)

    def _notice(self, event: dict[str, Any]) -> None:
        match event:
            case {"method": "Network.requestWillBeSent", "params": {"request": {"url": url}}}:
                self.requested.append(url)
            case {"method": "Log.entryAdded", "params": {"entry": {"level": "error", "text": text}}}:
                self.errors.append(text)

    async def open(self, url: str) -> None:
        for domain in ("Page", "Network", "Log", "Runtime"):
            await self.call(f"{domain}.enable")
        await self.call("Page.navigate", url=url)

    async def new_tab(self, url: str) -> Page:
        """Another tab of the same browser, which is then the one that is seen."""
        # Nobody reads what it would be told of its requests.
        async with self._http.put(f"{self._browser_url}/json/new?{url}") as answer:
            tab = await answer.json()
        socket = await self._http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0)
        return Page(socket, self._http, self._browser_url)

    async def run(self, script: str) -> Any:
        answer = await self.call("Runtime.evaluate", expression=script, returnByValue=True)
        return answer["result"].get("value")

    async def until(self, script: str) -> Any:
        """Until the script finds something; what it found."""
        async with asyncio.timeout(PATIENCE_S):
            while not (found := await self.run(script)):
                await asyncio.sleep(0.05)
        return found

    async def picture(self, file: Path) -> None:
        answer = await self.call("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(answer["data"]))


@contextlib.asynccontextmanager
async def chromium(
    folder: Path, *, size: tuple[int, int] = (1000, 620), within_s: float = 10 * PATIENCE_S
) -> AsyncIterator[Page]:
    """A browser of its own, without a screen, that knows no proxy; `within_s` is how long it may live."""
    command = [
        *(path(), "--headless=new", "--no-first-run", "--no-proxy-server", "--disable-gpu"),
        *("--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0"),
        *(f"--user-data-dir={folder}", f"--window-size={size[0]},{size[1]}", "--force-device-scale-factor=1"),
        # Its own sandbox does not start for root, as which containers often run.
        *(["--no-sandbox"] if os.geteuid() == 0 else []),
        "about:blank",
    ]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            async with aiohttp.ClientSession() as http, asyncio.timeout(within_s):
                url = f"http://127.0.0.1:{await _port(folder / 'DevToolsActivePort')}"
                async with http.get(f"{url}/json") as answer:
                    tabs = await answer.json()
                tab = next(tab for tab in tabs if tab["type"] == "page")
                async with http.ws_connect(tab["webSocketDebuggerUrl"], max_msg_size=0) as socket:
                    yield Page(socket, http, url)
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


async def _port(file: Path) -> int:
    async with asyncio.timeout(PATIENCE_S):
        while not file.is_file() or not file.read_text():
            await asyncio.sleep(0.05)
    return int(file.read_text().splitlines()[0])
