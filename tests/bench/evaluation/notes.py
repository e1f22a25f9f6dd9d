"""Sentences of the evaluation that no program can write: why a figure differs. Edit these, not the page."""

from __future__ import annotations

CELLS: dict[str, str] = {}
"""By setting, such as `h200-llama-8b mooncake 20ms`: why `auto` is not at least 0.98 of the best other."""

PAPERS: dict[str, str] = {
    "duet static azure-code": "The paper gives bars, no numbers.",
}
"""By the key of a finding in papers.py: where and why our figure is not the paper's."""

REALITY = ""
"""What the differences between the emulator and the measurements come from."""
