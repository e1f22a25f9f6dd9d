"""Rules and dashboard ask only for metrics that exist; each alert has a paragraph that says what to do."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from pdmuxd.daemon.cli.main import main
from pdmuxd.daemon.metrics.definitions import DEFINITIONS
from pdmuxd.daemon.monitoring.dashboard import dashboard
from pdmuxd.daemon.monitoring.files import rules, write
from pdmuxd.daemon.monitoring.panels import ROWS

ALERTS = (Path(__file__).parents[3] / "docs" / "alerts.md").read_text()
SERIES = {name for it in DEFINITIONS.values() for name in it.series}
OF_THE_PROCESS = {"pdmuxd_process_cpu_seconds_total", "pdmuxd_process_resident_memory_bytes"}
RULES = [rule for group in yaml.safe_load(rules())["groups"] for rule in group["rules"]]
RECORDED = {rule["record"] for rule in RULES if "record" in rule}
QUERIES = [query for row in ROWS.values() for panel in row for query, _ in panel.queries]


def names_in(query: str) -> set[str]:
    without_texts = re.sub(r'"[^"]*"', "", query)
    return set(re.findall(r"\b(?:tenant:)?pdmuxd_[\w:]+", without_texts))


@pytest.mark.parametrize("query", [rule["expr"] for rule in RULES])
def test_a_rule_asks_for_what_is_exported(query):
    assert names_in(query) <= SERIES | RECORDED


@pytest.mark.parametrize("query", QUERIES)
def test_a_panel_asks_for_what_is_exported(query):
    assert names_in(query)
    assert names_in(query) <= SERIES | RECORDED | OF_THE_PROCESS


def test_labels_in_queries_are_labels_of_the_metrics():
    known = {label for it in DEFINITIONS.values() for label in it.labels}
    for query in (*QUERIES, *(rule["expr"] for rule in RULES)):
        used = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query))
        assert used <= known | {"job", "instance"}, query


def test_each_alert_has_a_paragraph_on_what_to_do():
    headings = re.findall(r"^## (.+)$", ALERTS, re.MULTILINE)
    slugs = {
        re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-"): heading for heading in headings
    }
    alerts = [rule for rule in RULES if "alert" in rule]
    for rule in alerts:
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert page == "docs/alerts.md"
        assert rule["alert"] in slugs[anchor].split(", ")
    assert {name for heading in headings for name in heading.split(", ")} == {it["alert"] for it in alerts}


def test_panels_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    for panel in dashboard()["panels"]:
        grid = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(grid["x"], grid["x"] + grid["w"])
            for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_the_folder_holds_what_both_read(tmp_path):
    written = write(tmp_path / "new" / "folder", targets=("127.0.0.1:8081", "gpu2:8081"))
    configs = {str(path.relative_to(tmp_path / "new" / "folder")): path for path in written}
    scraped = yaml.safe_load(configs["prometheus.yml"].read_text())["scrape_configs"][0]
    assert scraped["static_configs"] == [{"targets": ["127.0.0.1:8081", "gpu2:8081"]}]
    assert json.loads(configs["grafana/dashboards/pdmuxd.json"].read_text()) == dashboard()
    for path in written:
        if path.suffix == ".yml":
            assert yaml.safe_load(path.read_text())


def test_the_command_scrapes_the_admin_address_of_the_settings(tmp_path, capsys):
    assert main(["--set", "admin.port=9999", "monitoring", str(tmp_path)]) == 0
    assert '["127.0.0.1:9999"]' in (tmp_path / "prometheus.yml").read_text()
    assert str(tmp_path / "pdmuxd.rules.yml") in capsys.readouterr().out


@pytest.mark.parametrize("target", ["gpu1", "gpu1:0", "gpu1:99999", 'a"]:1', "http://gpu1:8081", ""])
def test_a_target_that_is_no_address_is_refused(target, tmp_path, capsys):
    assert main(["monitoring", "--target", target, str(tmp_path)]) == 2
    assert "--target is" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["monitoring", str(tmp_path / "file")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_alerts_have_an_absolute_runbook_when_its_page_is_named(tmp_path, capsys):
    page = "https://docs.example.com/pdmuxd/alerts.html"
    assert main(["monitoring", "--runbook-url", page, str(tmp_path)]) == 0
    groups = yaml.safe_load((tmp_path / "pdmuxd.rules.yml").read_text())["groups"]
    found = [rule["annotations"] for group in groups for rule in group["rules"] if "alert" in rule]
    assert len(found) > 20
    assert all(each["runbook_url"].startswith(f"{page}#pdmuxd") and "runbook" not in each for each in found)
    for wrong in ("docs/alerts.md", "https://a/b#c", 'https://a/"b'):
        assert main(["monitoring", "--runbook-url", wrong, str(tmp_path)]) == 2
        assert "--runbook-url is" in capsys.readouterr().err


def test_the_dashboard_leads_to_a_tenants_page_and_to_the_page_of_alerts():
    """The page is on the node that tells of the tenant; a page of alerts has to be published somewhere."""
    table = next(panel for panel in dashboard()["panels"] if panel["type"] == "table")
    (link,) = table["fieldConfig"]["overrides"][0]["properties"][0]["value"]
    assert link["url"] == "http://${__data.fields.instance}/ui/tenants/${__value.raw}"
    assert "instance" not in table["transformations"][0]["options"]["excludeByName"]
    assert dashboard()["links"] == []
    (runbook,) = dashboard("https://docs.example.com/alerts.html")["links"]
    assert runbook["url"] == "https://docs.example.com/alerts.html"


@pytest.mark.parametrize("title", ["TTFT", "Gaps between tokens"])
def test_percentiles_are_of_what_clients_got_with_their_target(title):
    panel = next(panel for panel in dashboard()["panels"] if panel["title"] == title)
    *percentiles, target = panel["targets"]
    assert all("pdmuxd_delivered_" in one["expr"] for one in percentiles)
    assert target["legendFormat"] == "{{tenant}} target"


def test_who_is_hurt_is_a_table_on_top():
    row, table, *others = dashboard()["panels"]
    assert (row["title"], table["type"], table["gridPos"]["w"]) == ("Who is hurt", "table", 24)
    assert [target["expr"].partition("{")[0] for target in table["targets"]] == ["pdmuxd_incident"]
    assert {panel["type"] for panel in others} == {"row", "timeseries"}
