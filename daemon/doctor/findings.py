"""What a check says: a verdict, what was found, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Verdicts from good to bad; only `fail` keeps the daemon from its job."""

    OK = "ok"
    INFO = "info"
    WARN = "warn"
    FAIL = "fail"


_SEVERITY = list(Verdict)


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's report."""

    check: str
    verdict: Verdict
    detail: str
    hint: str = ""
    """What to do; empty if there is nothing to be done."""


def ok(check: str, detail: str) -> Finding:
    """All is well."""
    return Finding(check, Verdict.OK, detail)


def info(check: str, detail: str, hint: str = "") -> Finding:
    """Worth knowing, not a shortcoming."""
    return Finding(check, Verdict.INFO, detail, hint)


def warn(check: str, detail: str, hint: str) -> Finding:
    """The daemon works, but not as well as it could."""
    return Finding(check, Verdict.WARN, detail, hint)


def fail(check: str, detail: str, hint: str) -> Finding:
    """The daemon will not start, or not do its job."""
    return Finding(check, Verdict.FAIL, detail, hint)


def worst(findings: Iterable[Finding]) -> Verdict:
    """The verdict over all findings."""
    return max((finding.verdict for finding in findings), key=_SEVERITY.index, default=Verdict.OK)
