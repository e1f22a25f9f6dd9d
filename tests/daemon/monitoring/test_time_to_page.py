"""For promises from 50% to 99.99%: how long until a page when all is late, and that calm pages nobody."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pdmuxd.daemon.monitoring.files import RULES, rules

PROMTOOL = shutil.which("promtool")
PAGE = (Path(__file__).parents[3] / "docs" / "monitoring.md").read_text()
TABLE = {
    float(promised): float(minutes)
    for promised, minutes in re.findall(r"^\| ([\d.]+)% \| ([\d.]+) \|$", PAGE, re.MULTILINE)
}
"""Promised percentage to minutes until the page, as the documentation has it."""
PER_STEP = 30
"""Requests: two a second."""
STEP_S, CALM_S, LATE_S = 15, 3600, 300
CRITICAL = ("PdmuxdTargetsMissedNow", "PdmuxdTtftBudgetBurnsFast", "PdmuxdTbtBudgetBurnsFast")
ALL = (*CRITICAL, "PdmuxdTtftBudgetBurns", "PdmuxdTbtBudgetBurns")


def case(percent: float) -> tuple[list[dict[str, str]], str]:
    """A tenant's series: an hour in which nine tenths of its budget go, then all its requests are late."""
    tenant, promised = f"of-{percent}".replace(".", "-"), percent / 100
    of = f'{{job="pdmuxd", instance="a", tenant="{tenant}"}}'
    calm, late, met = CALM_S // STEP_S, LATE_S // STEP_S, PER_STEP * (1 - 0.9 * (1 - promised))
    series = {
        "pdmuxd_slo_attainment_ratio": f"{promised}x{calm + late}",
        "pdmuxd_delivered_ttft_requests_total": f"0+{PER_STEP}x{calm + late}",
        "pdmuxd_delivered_ttft_met_total": f"0+{met}x{calm} {met * calm}x{late}",
    }
    return [{"series": name + of, "values": values} for name, values in series.items()], tenant


def look(at_s: int, alert: str, tenants: list[str]) -> dict[str, Any]:
    fired = [{"exp_labels": {"job": "pdmuxd", "tenant": each, "severity": "critical"}} for each in tenants]
    return {"eval_time": f"{at_s}s", "alertname": alert, "exp_alerts": fired}


def run(folder: Path, cases: list[dict[str, Any]]) -> None:
    assert PROMTOOL is not None
    # Texts are looked at by rules.test.yml.
    (folder / RULES).write_text(re.sub(r"\n +annotations:\n( {10}.*\n)+", "\n", rules()))
    document = {"rule_files": [RULES], "evaluation_interval": f"{STEP_S}s", "tests": cases}
    (folder / "page.test.yml").write_text(yaml.safe_dump(document))
    done = subprocess.run(
        [PROMTOOL, "test", "rules", "page.test.yml"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]


def test_the_table_has_every_promise() -> None:
    assert set(TABLE) == {50, 66, 83, 90, 95, 98, 99, 99.9, 99.99}
    assert max(TABLE.values()) + STEP_S / 60 <= 2.0


@pytest.mark.slow
@pytest.mark.skipif(PROMTOOL is None, reason="needs promtool: apt-get install prometheus")
def test_a_page_comes_when_the_table_says_and_none_in_an_hour_of_calm(tmp_path: Path) -> None:
    cases = []
    for percent, minutes in TABLE.items():
        series, tenant = case(percent)
        at_s = CALM_S + round(60 * minutes)
        looks = [look(second, alert, []) for second in range(60, CALM_S + 1, 300) for alert in ALL]
        # Groups of rules are evaluated in no order: what one records the other may see a step later.
        looks += [look(at_s - 2 * STEP_S, alert, []) for alert in CRITICAL]
        looks += [look(at_s + STEP_S, "PdmuxdTargetsMissedNow", [tenant])]
        cases.append({"interval": f"{STEP_S}s", "input_series": series, "alert_rule_test": looks})
    run(tmp_path, cases)
