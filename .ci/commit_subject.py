"""Refuse a commit message without a subject or with a long one: `commit_subject.py FILE`, as git calls it."""

from __future__ import annotations

import sys
from pathlib import Path

LONGEST = 72
"""Characters that every tool shows in one line."""


def complaint(message: str) -> str | None:
    """What is wrong with a commit message; None if nothing is."""
    lines = [line for line in message.splitlines() if not line.startswith("#")]
    subject = lines[0] if lines else ""
    if not subject.strip():
        return "the commit message has no subject in its first line"
    if len(subject) > LONGEST:
        return f"the subject has {len(subject)} characters, allowed are {LONGEST}: say the rest in the body"
    if len(lines) > 1 and lines[1].strip():
        return "a blank line must follow the subject"
    return None


if __name__ == "__main__":
    found = complaint(Path(sys.argv[1]).read_text(encoding="utf-8"))
    if found is not None:
        sys.exit(found)
