"""The commands of docs/start-gpu.md that need no GPU, in their order, on the emulated engine."""

from __future__ import annotations

import pytest
from page_walks import walked
from start_gpu import INSTALLATION, MODEL, PAGE, blocks, script

from pdmuxd.daemon.process.ports import free_port

LONGEST_S = 280


def test_the_page_has_twelve_commands_and_each_says_how_it_is_tested():
    steps = [block.step for block in blocks()]
    assert [step for step in steps if step != "No GPU"] == [str(number) for number in range(1, 13)]
    assert {block.said.split(" ")[0].strip(":") for block in blocks()} == {"tested", "not"}
    assert [block.step for block in blocks() if block.said.startswith("not")] == ["10", "11"]
    assert len(PAGE.read_text().split()) < 1200


def test_every_page_for_beginners_is_as_short_as_it_promises():
    root = PAGE.parents[1]
    assert len((root / "README.md").read_text().split()) <= 900
    assert len((root / "docs" / "tenants.md").read_text().split()) < 1500


@pytest.mark.slow
@pytest.mark.e2e
def test_what_needs_no_gpu_works_as_it_is_written(tmp_path):
    data, admin = free_port(), free_port()
    chosen = [b for b in blocks() if b.step not in (*INSTALLATION, "No GPU") and b.said.startswith("tested")]
    replaced = {
        f" --engine sglang --model {MODEL}": "",
        MODEL.rpartition("/")[2]: "llama-8b",
        "127.0.0.1:8080": f"127.0.0.1:{data}",
    }
    given = {"PDMUXD_DATA__PORT": str(data), "PDMUXD_ADMIN__PORT": str(admin), "PDMUXD_STATE_DIR": "state"}
    code, shown = walked(script(chosen, replaced), tmp_path, environ=given, longest_s=LONGEST_S)
    assert code == 0, shown[-4000:]
    assert '"usage"' in shown
    assert (tmp_path / "monitoring" / "compose.yml").exists()
    assert "ExecStart=" in (tmp_path / "units").read_text()
