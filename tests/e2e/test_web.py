"""The console in a headless Chromium, through `pdmuxd web-console`, against the real daemon."""

from __future__ import annotations

import base64
import contextlib
import re
import subprocess
import sys

import chromium
import pytest
from daemon_process import PATIENCE_S, wait_until
from steady_load import steady_load

pytestmark = pytest.mark.slow
LOGIN = "document.querySelector('#token').value = '{token}'; document.forms[0].submit()"
DRAWN = "!!document.body && document.body.classList.contains('-first-byte')"


@contextlib.contextmanager
def serving_web(daemon):
    """`pdmuxd web-console` of that daemon; its address."""
    settings = ["--set", f"state_dir={daemon.folder / '.pdmuxd'}"]
    command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *settings, "web-console", "--port", "0"]
    with subprocess.Popen([*command, "--url", daemon.admin_url], stdout=subprocess.PIPE, text=True) as web:
        try:
            assert web.stdout is not None
            yield re.search(r"http://127\.0\.0\.1:\d+/(?= \(Ctrl)", web.stdout.readline())[0]
        finally:
            web.terminate()
            assert web.wait(PATIENCE_S) == 0


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
            await page.until_drawn(r"\[2 Tenants\]")
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


MOST_KEYS = 12
FROM_ALARM_TO_EFFECT = (
    ("Enter", "Why targets were missed"),
    ("e", "Targets of default, version 2"),
    ("8", ""),
    ("0", "busy load|usual load"),
    ("Enter", "Change the targets of default"),
    ("y", r" 3 [^\n]*in force"),
    ("Escape", r"(?s)Tenants, worst first.*/80 "),
)
"""A key, and what is to be seen before the next one."""


@pytest.fixture
def overloaded(start):
    """More comes than the GPU serves within a very strict TTFT target; the daemon says so in an alarm."""
    daemon = start(settings=["engine.policy=muxwise"])
    targets = {"ttft_fixed_ms": 20, "ttft_per_1k_new_tokens_ms": 20, "tbt_ms": 50, "attainment_ratio": 0.99}
    daemon.admin("PUT", "/api/v1/tenants/default/slo?force=true", json=targets)
    with steady_load(daemon.data_url, daemon.key, daemon.model, users=24, prompt_words=1500, tokens=200):
        wait_until(lambda: daemon.admin("GET", "/api/v1/alarms").json()["active"])
        yield daemon


def test_the_effect_is_seen_within_twelve_keys_when_there_is_an_alarm(overloaded, open_console):
    terminal = open_console(overloaded)
    terminal.until(lambda text: "alarm" in text and "default misses TTFT" in text and "Likely cause:" in text)
    pressed = 0
    for key, seen in FROM_ALARM_TO_EFFECT:
        terminal.press(key)
        pressed += 1
        terminal.until(lambda text, seen=seen: re.search(seen, text))
    assert overloaded.admin("GET", "/api/v1/tenants/default/slo").json()["tbt_ms"] == 80
    terminal.until(lambda text: "default misses" in text or "default meets" in text)
    assert pressed <= MOST_KEYS


async def test_the_effect_is_seen_within_twelve_keys_when_the_alarm_is_in_a_browser(overloaded, tmp_path):
    chromium.path()
    token = (overloaded.folder / ".pdmuxd" / "admin-token").read_text().strip()
    with serving_web(overloaded) as url:
        async with chromium.chromium(tmp_path / "browser") as page:
            await log_in(page, url, token)
            await page.until_drawn("default misses TTFT")
            for key, seen in FROM_ALARM_TO_EFFECT:
                page.forget()
                await page.press(key)
                await page.until_drawn(seen)
            assert len(FROM_ALARM_TO_EFFECT) <= MOST_KEYS
    assert overloaded.admin("GET", "/api/v1/tenants/default/slo").json()["tbt_ms"] == 80
