"""Whether sessions may be compared: each measures the same run, and 5% is what they may differ by."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from pdmuxd.daemon.bench.load.score import summary

AGREEMENT_RATIO = 0.05
FORMERLY = "sitting"
"""What result files of before 2026-11-23 call the session."""
_FIGURES = {"ttft_p50_ms": "TTFT p50", "tbt_p50_ms": "TBT p50", "input_tps": "input tokens/s"}


def session_of(result: dict[str, Any]) -> str | None:
    """In which session it was measured, also in older files."""
    session: str | None = result.get("session", result.get(FORMERLY))
    return session


def repeated(results: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By run, the results of every run that several sessions have measured, in their order."""
    by_run: dict[str, dict[str, dict[str, Any]]] = defaultdict(dict)
    for result in results:
        name = f"{result['key'][0]} {result['key'][1]} {result['key'][2]} seed {result['key'][3]}"
        session = session_of(result)
        if session is not None and "build" not in result:
            by_run[name].setdefault(session, result)
    return {name: list(found.values()) for name, found in by_run.items() if len(found) > 1}


def agreement(results: Sequence[dict[str, Any]]) -> list[str]:
    """Lines for people: how far each later session is from the first, and whether that is too far."""
    said: list[str] = []
    for name, found in repeated(results).items():
        first = summary(found[0], tbt_ms=1.0)
        for later in found[1:]:
            figures = summary(later, tbt_ms=1.0)
            off = {
                label: figures[key] / first[key] - 1.0 for key, label in _FIGURES.items() if first[key] > 0
            }
            texts = ", ".join(f"{label} {ratio:+.1%}" for label, ratio in off.items())
            agrees = all(abs(ratio) <= AGREEMENT_RATIO for ratio in off.values())
            verdict = "agrees" if agrees else "DIFFERS BY MORE THAN 5%: do not compare their rows"
            said.append(f"{name}: {session_of(later)} against {session_of(found[0])}: {texts}: {verdict}")
    return said or ["no run was measured in two sessions: whether they may be compared is not known"]
