"""Refuses docstrings that begin with neither a noun nor a verb: "Of a swatch before the text."

`make lint` runs it. Such a sentence leaves out what stands in a name above it, and is a riddle without
that. A public module, class or function has a docstring (ruff's D1); a method has one where it says what
its name does not.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ("controlplane", "daemon", "engine", "migrations", "systemd", "tui")
PREPOSITIONS = (
    "about|above|across|after|against|among|around|as|at|before|behind|below|beside|between|by|during|for|from|in|into"
    "|of|on|over|per|through|to|under|until|upon|with|within|without"
)
PRONOUNS = "he|his|it|its|she|her|their|them|these|they|those|who|whom|whose"
_RIDDLE = re.compile(rf"(?:{PREPOSITIONS}|{PRONOUNS})\b", re.IGNORECASE)


def riddles(text: str) -> Iterator[tuple[int, str]]:
    """The docstrings of a file that begin so: line, first line."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
            said = ast.get_docstring(node) or ""
            if _RIDDLE.match(said):
                yield node.body[0].lineno, said.partition("\n")[0]


def main() -> int:
    """Print what is found; the exit status."""
    found = [
        f"{path.relative_to(ROOT)}:{number}: begins with neither a noun nor a verb: {said}"
        for folder in PRODUCT
        for path in sorted((ROOT / folder).rglob("*.py"))
        for number, said in riddles(path.read_text())
    ]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
