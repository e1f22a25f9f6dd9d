"""What the commit-msg hook refuses."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

COMPLAINT = runpy.run_path(str(Path(__file__).parents[1] / ".ci" / "commit_subject.py"))["complaint"]


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ("x" * 73, "73 characters"),
        ("", "no subject"),
        ("\nthe first line is empty", "no subject"),
        ("A subject\nand no blank line", "blank line"),
    ],
)
def test_a_message_is_refused_when_its_subject_is_not_one(message: str, says: str) -> None:
    assert says in COMPLAINT(message)


@pytest.mark.parametrize("message", ["x" * 72, "A subject\n\nA body.\n# a comment of git's\n"])
def test_a_message_is_taken_when_its_subject_is_short(message: str) -> None:
    assert COMPLAINT(message) is None
