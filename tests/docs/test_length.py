"""The guide stays short: what is read from begin to end, without reference, measurements and decisions."""

from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
REFERENCE = {
    "alerts",
    "api",
    "configuration",
    "emulator-server",
    "errors",
    "folders",
    "invariants",
    "metrics",
    "recipes",
    "result-json",
}
"""Looked up, and compared with the code."""
GENERATED = {"evaluation", "ladder"}
MOST_WORDS = 25_000


def test_the_guide_has_fewer_words_than_it_may() -> None:
    words = {
        path.stem: len(path.read_text().split())
        for path in DOCS.glob("*.md")
        if path.stem not in REFERENCE | GENERATED
    }
    total = sum(words.values())
    assert total <= MOST_WORDS, f"{total} words; the longest: {sorted(words, key=words.__getitem__)[-3:]}"
