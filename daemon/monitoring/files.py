"""The files that Prometheus and Grafana read, as a folder."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path

from pdmuxd.daemon.monitoring.dashboard import dashboard
from pdmuxd.engine.core.errors import SettingsError

RULES = "pdmuxd.rules.yml"


_RUNBOOK = re.compile(r"runbook: docs/alerts\.md(#\S+)")


def rules(runbook_url: str | None = None) -> str:
    """The recording and alerting rules; with the address of the page of alerts each has a `runbook_url`."""
    text = _asset(RULES)
    if runbook_url is None:
        return text
    return _RUNBOOK.sub(lambda found: f"runbook_url: {json.dumps(runbook_url + found[1])}", text)


def write(folder: Path, *, targets: tuple[str, ...], runbook_url: str | None = None) -> tuple[Path, ...]:
    """Write everything into `folder`; files of the same names are written anew. Returns what was written.

    `targets` are admin addresses (host:port) to scrape. Raises: SettingsError if it cannot be written.
    """
    quoted = ", ".join(json.dumps(target) for target in targets)
    contents = {
        "prometheus.yml": _asset("prometheus.yml").replace("@TARGETS@", quoted),
        RULES: rules(runbook_url),
        "compose.yml": _asset("compose.yml"),
        "grafana/provisioning/datasources/prometheus.yml": _asset("datasource.yml"),
        "grafana/provisioning/dashboards/pdmuxd.yml": _asset("provider.yml"),
        "grafana/dashboards/pdmuxd.json": json.dumps(dashboard(runbook_url), indent=1) + "\n",
    }
    written = []
    try:
        for name, text in contents.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
            written.append(path)
    except OSError as error:
        raise SettingsError(f"cannot write {error.filename or folder}: {error.strerror}") from error
    return tuple(written)


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text("utf-8")
