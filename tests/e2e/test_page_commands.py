"""The commands of docs/configuration.md, and those that other pages call tested."""

from __future__ import annotations

import re
from pathlib import Path

from page_walks import walked

ROOT = Path(__file__).parents[2]
LONGEST_S = 280


def blocks(page, *, told=""):
    """The shell blocks of a page, or of those the ones whose first line says `told`."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in ("", "sh") and text.startswith(told)]


def test_blocks_that_are_called_tested_work_as_they_are_written(daemon, tmp_path):
    pages = ("docs/tenants.md", "docs/policies.md", "docs/monitoring.md", "README.md")
    found = [block for page in pages for block in blocks(page, told="# tested\n")]
    assert len(found) == 4, "the README's drains the engine and comes last"
    script = "\n".join(found)
    address = "BASE=http://127.0.0.1:8080 PDMUXD_API_KEY=pdm_..."
    for written, tried in {
        "export PDMUXD_STATE_DIR=$PWD/.pdmuxd": "export",
        address: f"BASE={daemon.data_url} PDMUXD_API_KEY={daemon.key}",
        "pdmuxd top ": "true ",  # it needs a terminal
    }.items():
        assert written in script, written
        script = script.replace(written, tried)
    given = {"PDMUXD_STATE_DIR": str(daemon.folder / ".pdmuxd")}
    code, shown = walked(script, tmp_path, environ=given, longest_s=LONGEST_S)
    assert code == 0, shown[-3000:]
    assert "data: [DONE]" in shown
    assert (tmp_path / "monitoring" / "prometheus.yml").exists()
    assert daemon.admin("POST", "/api/v1/engine/resume").is_success


def test_the_readmes_python_prints_an_answer(daemon, capsys):
    (text,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    text = text.replace("http://127.0.0.1:8080", daemon.data_url).replace("pdm_...", daemon.key)
    exec(text, {})
    assert capsys.readouterr().out.strip()


def test_what_the_configuration_page_shows_is_what_is_printed(tmp_path):
    text = (ROOT / "docs" / "configuration.md").read_text()
    shown = "".join(re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE))
    runs = re.findall(r"^\$ ([^\n]*)\n((?:(?!\$ )[^\n]*\n)*)", shown, re.MULTILINE)
    assert len(runs) == 5
    for command, printed in runs:
        code, said = walked(f"{{ set +x; }} 2>/dev/null\n{command}", tmp_path, environ={}, longest_s=60)
        assert code == (2 if printed.startswith("error") else 0), said
        wanted = [line.split() for line in printed.splitlines()]
        assert [words for words in map(str.split, said.splitlines()) if words in wanted] == wanted, said
