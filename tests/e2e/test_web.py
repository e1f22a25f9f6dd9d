"""The console in a headless Chromium, through `pdmuxd web`, against the real daemon."""

from __future__ import annotations

import base64
import contextlib
import re
import subprocess
import sys

import chromium
import pytest

pytestmark = pytest.mark.slow
LOGIN = "document.querySelector('#token').value = '{token}'; document.forms[0].submit()"
DRAWN = "!!document.body && document.body.classList.contains('-first-byte')"


@contextlib.contextmanager
def serving_web(daemon):
    """`pdmuxd web` of that daemon; its address."""
    settings = ["--set", f"state_dir={daemon.folder / '.pdmuxd'}"]
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *settings, "web", "--port", "0"]
    with subprocess.Popen([*command, "--url", daemon.admin_url], stdout=subprocess.PIPE, text=True) as web:
        try:
            assert web.stdout is not None
            yield re.search(r"http://127\.0\.0\.1:\d+/(?= \(Ctrl)", web.stdout.readline())[0]
        finally:
            web.terminate()
            assert web.wait(30) == 0


async def log_in(page, url, token):
    await page.open(url)
    await page.until("!!document.querySelector('#token')")
    await page.run(LOGIN.format(token=token))
    await page.until(DRAWN)


async def test_the_console_is_the_same_when_it_is_in_a_browser(start, tmp_path):
    chromium.path()
    daemon = start()
    token = (daemon.folder / ".pdmuxd" / "admin-token").read_text().strip()
    with serving_web(daemon) as url:
        async with chromium.chromium(tmp_path / "browser") as page:
            await log_in(page, url, token)
            await page.until_drawn("● serving")
            page.forget()
            await page.press("2")
            await page.until_drawn("[2 Tenants]")
            await page.until_drawn("default")
            await page.press("q")
            await page.until("document.body.classList.contains('-closed')")
            assert page.errors == []
            assert all(requested.startswith(url) for requested in page.requested)


async def test_the_reference_opens_without_the_internet_when_a_browser_asks(start, tmp_path):
    chromium.path()
    daemon = start()
    token = (daemon.folder / ".pdmuxd" / "admin-token").read_text().strip()
    basic = base64.b64encode(f"operator:{token}".encode()).decode()
    async with chromium.chromium(tmp_path / "browser") as page:
        await page.call("Network.enable")
        await page.call("Network.setExtraHTTPHeaders", headers={"Authorization": f"Basic {basic}"})
        await page.open(f"{daemon.admin_url}/docs")
        await page.until("document.querySelectorAll('.opblock').length > 20")
        loaded = [requested for requested in page.requested if not requested.startswith("data:")]
        assert loaded
        assert all(requested.startswith(daemon.admin_url) for requested in loaded), loaded
