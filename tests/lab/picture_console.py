"""Pictures of the console: its own screenshots, of a real daemon under overload.

One tenant sends long documents, more than the GPU serves; another's short questions wait behind them.

    .venv/bin/python tests/lab picture-console docs/images

The fonts of the library's SVGs come from a public network; here any monospaced font of the reader does.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))

import httpx
from bench_console import SETTINGS, welcome
from steady_load import steady_load

from pdmuxd.tui.app import ConsoleApp
from pdmuxd.tui.client.target import Target

SHOTS = (
    ("console-overview", (110, 42), ["1"], False),
    ("console-partitions", (100, 28), ["3", *["pagedown"] * 4], False),
    ("console-tenant", (100, 32), ["enter"], True),
    ("console-edit", (100, 32), ["enter", "e", "8", "0"], False),
)
EFFECT = ("console-effect", (100, 32), ["colon", *"chat", "enter"], False)
"""What an edit did, in a console that was not there when it was made."""
WARM_UP_S = 150.0
EFFECT_S = 90.0
CHAT = {"ttft_fixed_ms": 300, "ttft_per_1k_new_tokens_ms": 300, "tbt_ms": 50, "attainment_ratio": 0.99}
DOCUMENTS = CHAT | {"ttft_fixed_ms": 20_000, "ttft_per_1k_new_tokens_ms": 2000, "attainment_ratio": 0.9}
CLIPPED = 'clip-path="url(#t-clip-terminal)"'


def main(folder: Path) -> None:
    """Start a daemon, load it, look at it."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pdmuxd.daemon.cli.main", *SETTINGS, "serve", "--first-run"]
        with subprocess.Popen(
            [*command[:3], "--set", "engine.policy=muxwise", *command[3:]],
            cwd=place,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as daemon:
            try:
                data_url, admin_url, key, model = welcome(daemon)
                token = (Path(place) / ".pdmuxd" / "admin-token").read_text().strip()
                chat = tenant(admin_url, token, "chat", CHAT)
                documents = tenant(admin_url, token, "documents", DOCUMENTS)
                with (
                    steady_load(data_url, key, model, users=2, prompt_words=100, tokens=100),
                    steady_load(data_url, chat, model, users=12, prompt_words=200, tokens=200),
                    steady_load(data_url, documents, model, users=20, prompt_words=4000, tokens=100),
                ):
                    asyncio.run(shoot_all(folder, admin_url, token))
            finally:
                daemon.terminate()


def tenant(url: str, token: str, name: str, slo: dict[str, float]) -> str:
    """Make one; its key."""
    headers = {"Authorization": f"Bearer {token}"}
    with httpx.Client(base_url=f"{url}/api/v1", headers=headers, timeout=60) as http:
        http.post("/tenants", json={"name": name, "slo": slo}).raise_for_status()
        made = http.post(f"/tenants/{name}/keys", json={}).raise_for_status().json()
    return str(made["secret"])


async def shoot_all(folder: Path, url: str, token: str) -> None:
    """At once: each needs minutes of history."""
    await asyncio.gather(*(shoot(folder, url, token, *shot) for shot in SHOTS))
    async with httpx.AsyncClient(headers={"Authorization": f"Bearer {token}"}, timeout=60) as http:
        edited = CHAT | {"tbt_ms": 20}
        answer = await http.put(f"{url}/api/v1/tenants/chat/slo?force=true", json=edited)
        answer.raise_for_status()
    await asyncio.sleep(EFFECT_S)
    await shoot(folder, url, token, *EFFECT, warm_up_s=5.0)


async def shoot(
    folder: Path,
    url: str,
    token: str,
    name: str,
    size: tuple[int, int],
    keys: list[str],
    is_light: bool,
    *,
    warm_up_s: float = WARM_UP_S,
) -> None:
    """Press keys, wait, keep the picture."""
    app = ConsoleApp(Target(url=url, token=lambda: token), is_light=is_light)
    async with app.run_test(size=size) as pilot:
        await asyncio.sleep(warm_up_s)
        for key in keys:
            await pilot.press(key)
            await asyncio.sleep(2.5)
        app.paint()
        await pilot.pause()
        (folder / f"{name}.svg").write_text(slim(app.export_screenshot(title="pdmuxd top")))


def slim(svg: str) -> str:
    """Without the fonts that would be loaded from elsewhere, without blanks that nobody sees, and without
    what is said of every piece of text or colour: a third less to keep."""
    svg = re.sub(r"terminal-\d+", "t", re.sub(r"<!--.*?-->", "", svg))
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<clipPath id="t-line-\d+">.*?</clipPath>', "", svg, flags=re.DOTALL)
    svg = re.sub(r'\s*clip-path="url\(#t-line-\d+\)"', "", svg)
    crisp = ' shape-rendering="crispEdges"'
    svg = svg.replace(crisp, "").replace(CLIPPED, CLIPPED + crisp)
    return re.sub(r">\s+<", "><", svg).replace("&#160;", "\u00a0") + "\n"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
