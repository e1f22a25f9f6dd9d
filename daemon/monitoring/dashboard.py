"""The Grafana dashboard, made from the table of panels (schema version 39: Grafana 11 and later)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from pdmuxd.daemon.monitoring.panels import ROWS, Panel
from pdmuxd.tui.show import colours

_WIDTH = 24
_HEIGHT = 8
_UNITS = {"tokens/s": "short", "ratio": "short"}
"""Ours that Grafana does not have."""
COLOURS = {
    "prefill": colours.PREFILL,
    "decode|decoding": colours.DECODE,
    "idle": colours.IDLE,
    "promised|target": colours.TARGET,
}
"""By the last word of a legend. The same in the console and in reports."""
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


_TENANT_PAGE = "http://${__data.fields.instance}/ui/tenants/${__value.raw}"
"""The admin address that Prometheus scrapes serves the pages, too."""


def dashboard(runbook_url: str | None = None) -> dict[str, Any]:
    """The document that Grafana imports, or finds by provisioning; with a link to the page of alerts."""
    links = [] if runbook_url is None else [_link("When an alert fires", runbook_url)]
    return {
        "uid": "pdmuxd",
        "title": "pdmuxd",
        "tags": ["pdmuxd", "llm"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "timezone": "browser",
        "links": links,
        "templating": {"list": list(_variables())},
        "annotations": {
            "list": [
                {
                    "name": "Alerts",
                    "datasource": _SOURCE,
                    "enable": True,
                    "iconColor": "red",
                    "expr": 'ALERTS{alertname=~"Pdmuxd.*", alertstate="firing"}',
                    "titleFormat": "{{alertname}}",
                }
            ]
        },
        "panels": list(_panels()),
    }


def _link(title: str, url: str) -> dict[str, Any]:
    return {"type": "link", "title": title, "url": url, "icon": "doc", "targetBlank": True}


def _variables() -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Data source"}
    yield _variable("job", "label_values(pdmuxd_engine_up, job)", many=False)
    yield _variable("instance", 'label_values(pdmuxd_engine_up{job="$job"}, instance)')
    tenants = 'label_values(pdmuxd_slo_attainment_ratio{job="$job", instance=~"$instance"}, tenant)'
    yield _variable("tenant", tenants)


def _variable(name: str, query: str, *, many: bool = True) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "label": name.capitalize(),
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": many,
        "includeAll": many,
        **({"allValue": ".*", "current": {"text": "All", "value": "$__all"}} if many else {}),
    }


def _panels() -> Iterator[dict[str, Any]]:
    y = number = 0
    for title, panels in ROWS.items():
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": title,
            "collapsed": False,
            "panels": [],
            "gridPos": {"x": 0, "y": y, "w": _WIDTH, "h": 1},
        }
        y += 1
        columns = 1 if panels[0].is_table else 3 if len(panels) % 3 == 0 else 4
        width = _WIDTH // columns
        for index, panel in enumerate(panels):
            number += 1
            line, column = divmod(index, columns)
            grid = {"x": column * width, "y": y + line * _HEIGHT, "w": width, "h": _HEIGHT}
            yield (_table if panel.is_table else _panel)(panel, number, grid)
        y += -(-len(panels) // columns) * _HEIGHT


def _overrides(panel: Panel) -> Iterator[dict[str, Any]]:
    """Grafana chooses the colours of all other series, also of a tenant whose name is one of these words."""
    legends = " ".join(legend for _, legend in panel.queries)
    for word, colour in COLOURS.items():
        if re.search(rf"\b({word})\b", legends.replace("{{phase}}", "prefill decode")):
            yield {
                "matcher": {"id": "byRegexp", "options": f"/ ({word})$/"},
                "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}],
            }


def _table(panel: Panel, number: int, grid: dict[str, int]) -> dict[str, Any]:
    hidden = ("Time", "Value", "__name__", "job")
    return {
        "id": number,
        "type": "table",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": grid,
        "fieldConfig": {
            "defaults": {"noValue": "Every promise is kept."},
            "overrides": [
                {
                    "matcher": {"id": "byName", "options": "tenant"},
                    "properties": [
                        {
                            "id": "links",
                            "value": [
                                {"title": "Its page on ${__data.fields.instance}", "url": _TENANT_PAGE}
                            ],
                        }
                    ],
                }
            ],
        },
        "options": {"showHeader": True},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query,
                "format": "table",
                "instant": True,
            }
            for index, (query, _) in enumerate(panel.queries)
        ],
        "transformations": [
            {"id": "organize", "options": {"excludeByName": dict.fromkeys(hidden, True)}},
        ],
    }


def _panel(panel: Panel, number: int, grid: dict[str, int]) -> dict[str, Any]:
    drawn: dict[str, Any] = {"lineWidth": 1, "fillOpacity": 30 if panel.stacked else 5, "showPoints": "never"}
    if panel.stacked:
        drawn["stacking"] = {"mode": "normal", "group": "A"}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": grid,
        "fieldConfig": {
            "defaults": {"unit": _UNITS.get(panel.unit, panel.unit), "min": 0, "custom": drawn},
            "overrides": list(_overrides(panel)),
        },
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {"refId": chr(ord("A") + index), "datasource": _SOURCE, "expr": query, "legendFormat": legend}
            for index, (query, legend) in enumerate(panel.queries)
        ],
    }
