"""The commands of docs/start-gpu.md that need no GPU, in their order, on the emulated engine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from page_walks import walked

from pdmuxd.daemon.process.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "start-gpu.md"
LONGEST_S = 280
SERVE = "pdmuxd serve --first-run > serve.log 2>&1 &\n"


def blocks():
    """Every block of the page: what is said of it, and its commands."""
    found = re.findall(r"```sh\n# ([^\n]*)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(found) == PAGE.read_text().count("```sh"), "each block begins with what is done with it"
    return found


def test_the_page_has_twelve_commands_and_each_says_whether_it_is_tested():
    assert len(blocks()) == len(re.findall(r"^\*\*\d+\. ", PAGE.read_text(), re.MULTILINE)) == 12
    assert {said.split(" ")[0] for said, _ in blocks()} == {"tested", "not"}
    assert len(PAGE.read_text().split()) < 1200


def test_every_page_for_beginners_is_as_short_as_it_promises():
    root = PAGE.parents[1]
    assert len((root / "README.md").read_text().split()) <= 900
    assert len((root / "docs" / "tenants.md").read_text().split()) < 1500


@pytest.mark.slow
@pytest.mark.e2e
def test_what_needs_no_gpu_works_as_it_is_written(tmp_path):
    data, admin = free_port(), free_port()
    script = ""
    for said, commands in blocks():
        if "--engine sglang" in commands:
            script += SERVE
        elif said == "tested with --dry-run":
            script += commands.replace("install-service", "install-service --dry-run > units")
        elif said == "tested":
            script += commands
    script = script.replace("127.0.0.1:8080", f"127.0.0.1:{data}").replace("MODEL", "llama-8b")
    given = {"PDMUXD_DATA__PORT": str(data), "PDMUXD_ADMIN__PORT": str(admin), "PDMUXD_STATE_DIR": "state"}
    code, shown = walked(script + "kill $!; wait\n", tmp_path, environ=given, longest_s=LONGEST_S)
    assert code == 0, shown[-4000:]
    assert '"usage"' in shown
    assert (tmp_path / "monitoring" / "compose.yml").exists()
    assert "ExecStart=" in (tmp_path / "units").read_text()
