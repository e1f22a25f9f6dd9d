"""The pages in a headless Chromium, against a daemon that cannot keep its targets."""

from __future__ import annotations

import contextlib
import re
from importlib.resources import files

import chromium
import pytest
from daemon_process import wait_until
from steady_load import steady_load
from ui_pages import LOADED, LOGIN, WIDTHS, every_path, go, resize

from pdmuxd.controlplane.api.access import PAGES

AXE = """(async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter(one => ["serious", "critical"].includes(one.impact))
  .map(one => `${one.id}: ${one.nodes.map(node => node.target).join(", ")}`).join("; "))()"""
WIDER = "document.documentElement.scrollWidth > document.documentElement.clientWidth"
DARK_TOO = ("/ui/overview", "/ui/tenants/default", "/ui/tenants/default/targets")
"""Among them they have all colours."""
NO_PAGES = {"/ui", "/ui/overview/picture", "/ui/live", "/ui/tenants.csv", "/ui/reports/{file}", "/ui/{path}"}
"""They lead on, are parts, a stream or a file, or are not there."""
THIEF = """<!doctype html><title>A report</title><script>
const tried = {ran: true};
const attempt = (name, act) => {
  try { tried[name] = String(act()); } catch (error) { tried[name] = "refused"; }
};
attempt("cookie", () => document.cookie);
attempt("storage", () => localStorage.length);
attempt("opener", () => window.open("/ui/overview").document.title);
fetch("/ui/overview").then(() => "answered", () => "refused").then(found => {
  tried.fetch = found; tried.origin = origin; window.tried = tried; });
</script>"""
"""A report that somebody else made."""
SLO = {"ttft_fixed_ms": 20, "ttft_per_1k_new_tokens_ms": 20, "tbt_ms": 50, "attainment_ratio": 0.99}


def route_of(path):
    """The template of a page's address, as the table of rules has it."""
    place = path.partition("?")[0]
    return next(
        template
        for _, template in PAGES
        if re.fullmatch(re.sub(r"{\w+}", "[^/]+", template), place) and "{path}" not in template
    )


@pytest.fixture(scope="module")
def overloaded(shared):
    """More comes than the GPU serves within a very strict TTFT target; the daemon says so in an alarm."""
    daemon = shared.get()
    daemon.admin("PUT", "/api/v1/tenants/default/slo?force=true", json=SLO)
    with steady_load(daemon.data_url, daemon.key, daemon.model, users=12, prompt_words=1500, tokens=100):
        wait_until(lambda: daemon.admin("GET", "/api/v1/alarms").json()["active"])
        yield daemon


@contextlib.asynccontextmanager
async def logged_in(daemon, folder):
    chromium.path()
    token = (daemon.folder / ".pdmuxd" / "admin-token").read_text().strip()
    async with chromium.chromium(folder) as page:
        await page.open(f"{daemon.admin_url}/ui/overview?window=2h")
        await page.until("!!document.querySelector('#token')")
        await page.run(LOGIN.format(token=token))
        await page.until(LOADED.format(path="/ui/overview?window=2h"))
        yield page


async def test_every_page_fits_can_be_heard_and_keeps_to_itself(overloaded, tmp_path):
    axe = (files("axe_core_python") / "axe.min.js").read_text()
    found = {}
    async with logged_in(overloaded, tmp_path / "browser") as page:
        paths = every_path(overloaded.admin)
        for path in paths:
            await go(page, overloaded.admin_url, path)
            for width in WIDTHS:
                await resize(page, width)
                if await page.run(WIDER):
                    found[path, width] = "is wider than its window"
            for theme in ("light", "dark") if path in DARK_TOO else ("light",):
                scheme = {"name": "prefers-color-scheme", "value": theme}
                await page.call("Emulation.setEmulatedMedia", features=[scheme])
                await page.run(f"{axe}; 0")
                checked = await page.call(
                    "Runtime.evaluate", expression=AXE, awaitPromise=True, returnByValue=True
                )
                if checked["result"]["value"]:
                    found[path, theme] = checked["result"]["value"]
        assert found == {}
        assert {template for method, template in PAGES if method == "GET"} - NO_PAGES <= {
            route_of(path) for path in paths
        }, "every page is among them"
        foreign = [url for url in page.requested if not url.startswith((overloaded.admin_url, "data:"))]
        assert foreign == []
        # Here the browser tells what it refused for the pages' policy, and of the page that is not there.
        assert [error for error in page.errors if "404" not in error] == []


async def test_the_overview_is_live_and_keeps_its_place(overloaded, tmp_path):
    async with logged_in(overloaded, tmp_path / "browser") as page:
        await go(page, overloaded.admin_url, "/ui/overview")
        assert "default misses" in await page.until("document.querySelector('#verdict.bad h1')?.innerText")
        row = "document.querySelector('tr[data-tenant=default]')"
        await page.run(f"window.row = {row}; window.seen = document.querySelector('#strip').innerHTML; 0")
        await page.until("document.querySelector('#strip').innerHTML !== window.seen")
        assert await page.run(f"window.row === {row}"), "rows are not made anew"
        alarms = overloaded.admin("GET", "/api/v1/alarms").json()["active"]
        assert alarms[0]["text"][:20] in await page.run("document.querySelector('#alarm-list').innerText")
        await page.run(f"{row}.querySelector('a').click()")
        await page.until(LOADED.format(path="/ui/tenants/default"))
        await page.run("history.back()")
        await page.until(LOADED.format(path="/ui/overview"))
        await page.call("Page.reload")
        await page.until(f"!window.row && {row} && {LOADED.format(path='/ui/overview')}")


async def test_targets_are_changed_with_a_forecast(overloaded, tmp_path):
    async with logged_in(overloaded, tmp_path / "browser") as page:
        await go(page, overloaded.admin_url, "/ui/tenants/default/targets")
        await page.run("document.querySelector('#tbt_ms').value = '77'")
        await page.run("document.querySelector('button[value=forecast]').click()")
        await page.until("document.querySelector('#forecast') && document.readyState == 'complete'")
        await page.run("document.querySelector('[name=force]')?.click()")
        await page.run("document.querySelector('button[value=set]').click()")
        await page.until("location.pathname == '/ui/tenants/default' && document.readyState == 'complete'")
        assert overloaded.admin("GET", "/api/v1/tenants/default/slo").json()["tbt_ms"] == 77


async def test_a_reports_scripts_run_and_reach_nothing(overloaded, tmp_path):
    (overloaded.folder / ".pdmuxd" / "reports" / "thief.html").write_text(THIEF)
    async with logged_in(overloaded, tmp_path / "browser") as page:
        await go(page, overloaded.admin_url, "/ui/replays")
        await page.run("document.querySelector('a[href=\"/ui/reports/thief.html\"]').click()")
        tried = await page.until("window.tried")
        assert tried == {
            "ran": True,
            "cookie": "refused",
            "storage": "refused",
            "opener": "refused",
            "fetch": "refused",
            "origin": "null",
        }


async def test_a_logout_ends_the_pages(overloaded, tmp_path):
    async with logged_in(overloaded, tmp_path / "browser") as page:
        await page.run("document.querySelector('form[action=\"/ui/logout\"] button').click()")
        await page.until("!!document.querySelector('#token')")
        await page.call("Page.navigate", url=f"{overloaded.admin_url}/ui/tenants")
        await page.until("!!document.querySelector('#token')")
