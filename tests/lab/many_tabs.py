"""What twenty tabs of pages cost a daemon, beside one console and beside nobody.

`many-tabs [SECONDS [SECONDS_BEFORE]]` keeps the tabs open for SECONDS (600), one of them in sight for a
while and then the next, as people who work with them do. Before, nobody looks for SECONDS_BEFORE (120), and
then one console does. It prints the daemon's share of a core and its memory, and how long a tab that is seen
again takes until it tells of now.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import psutil
from bench_console import console
from chromium import Page, chromium
from daemon_process import Daemon
from picture_console import CHAT, tenant
from steady_load import steady_load
from tmux_console import Tmux
from ui_pages import LOGIN

TABS = (
    *("/ui/overview", "/ui/tenants/chat", "/ui/requests", "/ui/decisions", "/ui/overview?window=2h"),
    *("/ui/incidents", "/ui/gpu", "/ui/tenants", "/ui/partitions", "/ui/alarms", "/ui/overview"),
    *("/ui/audit", "/ui/policy", "/ui/tenants/chat?window=24h", "/ui/profiles", "/ui/overview"),
    *("/ui/settings", "/ui/replays", "/ui/requests?which=missed", "/ui/what-if?tbt_ms=30"),
)
TOLD = """(() => {{
  const live = document.querySelector("[data-live=verdict_more]");
  const at = performance.timeOrigin + performance.getEntriesByType("navigation")[0].responseEnd;
  return document.readyState == "complete" && (live ? window.told > {since} : at > {since} - {old_ms});
}})()"""
"""Whether a page has been told since then, or was loaded shortly before; in milliseconds since 1970."""
OLD_MS = 30_000
"""A page that is older loads itself again when its tab is seen again: as in `pages.js`."""
NOTE = """window.told ||= 0; window.kept ||= show;
window.show = message => { window.told = Date.now(); kept(message) }; 0"""
PATIENCE_S = 20.0
WARM_UP_S = 20.0
LOOK_S = 2.0


class Cost:
    """The daemon's processor time and memory, from here on."""

    def __init__(self, daemon: psutil.Process) -> None:
        self._daemon = daemon
        self._cpu_s, self._at_s = self._used_s(), time.monotonic()
        self.mib: list[float] = []

    def look(self) -> None:
        """Keep how much memory it has."""
        self.mib.append(self._daemon.memory_info().rss / 2**20)

    def told(self, who: str) -> str:
        """A line of it."""
        share = (self._used_s() - self._cpu_s) / (time.monotonic() - self._at_s)
        fifth = max(1, len(self.mib) // 5)
        first, last = statistics.mean(self.mib[:fifth]), statistics.mean(self.mib[-fifth:])
        return f"{who:14} {share:.2%} of a core; {first:.1f} MiB in its first fifth, {last:.1f} in its last"

    def _used_s(self) -> float:
        times = self._daemon.cpu_times()
        return float(times.user + times.system)


async def looks(cost: Cost, seconds: float) -> None:
    """Look at the memory until the time is over."""
    end_s = time.monotonic() + seconds
    while (left_s := end_s - time.monotonic()) > 0:
        cost.look()
        await asyncio.sleep(min(LOOK_S, left_s))


def main(tabs_s: float, before_s: float) -> None:
    """See the top."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        daemon = Daemon(place)
        process = psutil.Process(daemon.process.pid)
        try:
            chat = tenant(daemon.admin_url, daemon.token, "chat", CHAT)
            with steady_load(daemon.data_url, chat, daemon.model, users=2, prompt_words=300, tokens=100):
                time.sleep(WARM_UP_S)
                cost = Cost(process)
                asyncio.run(looks(cost, before_s))
                print(cost.told("nobody"), flush=True)
                os.chdir(place)
                terminal = Tmux(place, console(daemon.admin_url), width=120, height=40)
                terminal.until_shown("Overview")
                cost = Cost(process)
                asyncio.run(looks(cost, before_s))
                print(cost.told("one console"), flush=True)
                terminal.stop()
                asyncio.run(keep_open(daemon, process, place, tabs_s))
        finally:
            daemon.stop()
    print(f"load of the machine: {os.getloadavg()[1]:.1f} in five minutes, {os.cpu_count()} cores")


async def keep_open(daemon: Daemon, process: psutil.Process, place: Path, tabs_s: float) -> None:
    """Open all, bring one after the other in sight, and print what it cost."""
    async with chromium(place / "browser", size=(1280, 900), within_s=tabs_s + 600) as first:
        await first.open(f"{daemon.admin_url}/ui")
        await first.until("!!document.querySelector('#token')")
        await first.run(LOGIN.format(token=daemon.token))
        await first.until("location.pathname == '/ui/overview'")
        pages = [await first.new_tab(daemon.admin_url + path) for path in TABS]
        for page in pages:
            await page.until("document.readyState == 'complete'")
        cost, seen_s = Cost(process), []
        turn_s = tabs_s / (1.5 * len(pages))
        end_s = time.monotonic() + tabs_s
        while time.monotonic() < end_s:
            for path, page in zip(TABS, pages, strict=True):
                seen_s.append((path, await seen_again(page)))
                await looks(cost, min(turn_s, end_s - time.monotonic()))
                if time.monotonic() >= end_s:
                    break
        print(cost.told(f"{len(pages)} tabs"))
        last = [(path, await seen_again(page)) for path, page in zip(TABS, pages, strict=True)]
    for name, found in (("while they were open", seen_s), ("all of them at the end", last)):
        known = sorted(took for _, took in found if took is not None)
        stale = [path for path, took in found if took is None]
        print(
            f"seen again, {name}: told of now after {statistics.median(known):.2f} s in the median, "
            f"{known[-1]:.2f} at most, {len(found)} times; stale after {PATIENCE_S:.0f} s: "
            f"{', '.join(stale) or 'none'}"
        )


async def seen_again(page: Page) -> float | None:
    """Seconds until a tab that is brought in sight tells of now; None if it does not."""
    begun_s = time.monotonic()
    since = time.time() * 1e3
    await page.call("Page.bringToFront")
    try:
        async with asyncio.timeout(PATIENCE_S):
            while True:
                # While it loads itself again it answers nothing.
                with contextlib.suppress(AssertionError):
                    if await page.run(f"{NOTE}; {TOLD.format(since=since, old_ms=OLD_MS)}"):
                        break
                await asyncio.sleep(0.1)
    except TimeoutError:
        return None
    return time.monotonic() - begun_s


if __name__ == "__main__":
    given = [float(word) for word in sys.argv[1:]]
    main(given[0] if given else 600.0, given[1] if len(given) > 1 else 120.0)
