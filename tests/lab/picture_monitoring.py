"""Draw the dashboard's panels from a real Prometheus that scraped a real overload, for docs/monitoring.md.

Needs Prometheus (`apt-get install prometheus`) and matplotlib, which is no dependency of the project:

    uv venv /tmp/drawing && uv pip install --python /tmp/drawing/bin/python matplotlib
    .venv/bin/python tests/lab picture-monitoring record panels.json
    /tmp/drawing/bin/python tests/lab picture-monitoring draw panels.json docs/images/monitoring.png
"""

from __future__ import annotations

import contextlib
import json
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SUPPORT = Path(__file__).parents[1] / "support"
CALM_S, FLOOD_S, AFTER_S = 40, 40, 60
DRAWN = (
    *("First tokens in time", "First tokens late by length of the prompt, 1 h", "TTFT"),
    *("Gaps between tokens", "Good requests", "Refusals"),
    *("Waiting for prefill", "Share of SM time", "Split of the SMs", "SM time in use", "Decisions"),
    "Requests in the engine",
)
COLUMNS = 3
MOST_LINES = 8


def record(path: Path) -> None:
    """Run a load that becomes too much and calms down again; write what each panel's queries say of it."""
    sys.path.insert(0, str(SUPPORT))
    from daemon_process import Daemon
    from monitored_node import Load, Prometheus, panels

    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        daemon = Daemon(Path(place))
        stack.callback(daemon.stop)
        slo = {"ttft_fixed_ms": 300, "ttft_per_1k_new_tokens_ms": 300, "tbt_ms": 20, "attainment_ratio": 0.99}
        chat, docs = (_tenant(daemon, name, slo=slo, max_in_flight=64) for name in ("chat", "docs"))
        prometheus = Prometheus(Path(place) / "prometheus", [daemon.admin_url])
        stack.callback(prometheus.close)
        prometheus.wait_until_up()
        start_s = time.time()
        rates = {0: 1.0, CALM_S: 12.0, CALM_S + FLOOD_S: 1.0}
        load = Load(daemon.data_url, (chat, 6.0, 300, 120), (docs, rates, 8000, 60))
        load.run(CALM_S + FLOOD_S + AFTER_S)
        span = {"start": start_s, "end": time.time(), "step": 1}
        found = [
            {
                "title": panel.title,
                "unit": panel.unit,
                "stacked": panel.stacked,
                "lines": [
                    {
                        "name": (name := _named(legend, line["metric"])),
                        "colour": _colour_of(name),
                        "values": line["values"],
                    }
                    for query, legend in panel.queries
                    for line in prometheus.query(query, **span)
                ],
            }
            for panel in panels()
        ]
    path.write_text(json.dumps(found))


def _colour_of(name: str) -> str | None:
    """The colour of a series by its name's last word, where that has one everywhere."""
    from pdmuxd.daemon.monitoring.dashboard import COLOURS

    last = name.rpartition(" ")[2]
    return next((colour for word, colour in COLOURS.items() if re.fullmatch(word, last)), None)


def draw(source: Path, target: Path) -> None:
    """Draw the recorded panels, as Grafana would: a line for each series."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    recorded = {panel["title"]: panel for panel in json.loads(source.read_text())}
    rows = -(-len(DRAWN) // COLUMNS)
    figure, axes = pyplot.subplots(rows, COLUMNS, figsize=(17, 3.1 * rows), layout="constrained")
    start_s = min(line["values"][0][0] for panel in recorded.values() for line in panel["lines"])
    for axis, title in zip(axes.flat, DRAWN, strict=True):
        _draw_panel(axis, recorded[title], start_s)
    figure.savefig(target, dpi=75)


def _draw_panel(axis: Any, panel: dict[str, Any], start_s: float) -> None:
    lines = sorted(panel["lines"], key=_largest, reverse=True)[:MOST_LINES]
    for line in lines:
        at = [when - start_s for when, _ in line["values"]]
        values = [float(value) for _, value in line["values"]]
        axis.plot(at, values, label=line["name"], linewidth=1.2, color=line.get("colour"))
    axis.set_title(f"{panel['title']} ({panel['unit']})", fontsize=10)
    axis.set_ylim(bottom=0)
    axis.set_xlim(0, CALM_S + FLOOD_S + AFTER_S)
    axis.grid(alpha=0.3)
    axis.legend(fontsize=6, loc="upper left")
    for begin_s in (CALM_S, CALM_S + FLOOD_S):
        axis.axvline(begin_s, color="grey", linestyle=":", linewidth=1)


def _largest(line: dict[str, Any]) -> float:
    return max(float(value) for _, value in line["values"])


def _named(legend: str, metric: dict[str, str]) -> str:
    for label, value in metric.items():
        legend = legend.replace("{{" + label + "}}", value if label != "instance" else "node")
    return legend


def _tenant(daemon: Any, name: str, **fields: object) -> str:
    daemon.admin("POST", "/api/v1/tenants", json={"name": name, **fields})
    secret: str = daemon.admin("POST", f"/api/v1/tenants/{name}/keys", json={}).json()["secret"]
    return secret


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["record", path]:
            record(Path(path))
        case ["draw", source, target]:
            draw(Path(source), Path(target))
        case _:
            sys.exit(__doc__)
