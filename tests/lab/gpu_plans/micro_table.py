"""What `micro` found, in Markdown, beside what was aimed at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

SWITCH_S = 200e-6
TURN_MEDIAN_S, TURN_P99_S = 100e-6, 300e-6
LAYERWISE_RATIO = 0.015
MEMORY_RATIO = 0.07


def lines(found: Iterable[Mapping[str, Any]]) -> list[str]:
    """A table of everything."""
    rows = ["| what | found | target |", "|---|---:|---:|"]
    memory: list[Mapping[str, Any]] = []
    for one in found:
        match one["what"]:
            case "switch":
                rows += _switch(one)
            case "turns":
                rows += _turns(one)
            case "layerwise":
                rows.append(_layerwise(one))
            case "memory":
                memory.append(one)
            case "failed":
                rows.append(f"| {one['probe']} | FAILED: {one['error']} | |")
    return rows + _memory(memory)


def _switch(one: Mapping[str, Any]) -> list[str]:
    (a, b), (c, d) = one["groups"]
    what = f"switch between {a},{b} and {c},{d}, batch {one['bs']}, a step of {_ms(one['step_s'])} ms"
    lost = f"{_us(one['lost_s'])} ({_us(one['lost_worst_s'])})"
    return [
        f"| {what}: device time lost, median (worst) | {lost} us | {_us(SWITCH_S)} us |",
        f"| its host time, median | {_us(one['host_s'])} us | |",
    ]


def _turns(one: Mapping[str, Any]) -> list[str]:
    what = f"our CPU time in a turn, {one['policy']}, {one['cell']}, {one['turns']} turns"
    cpu, wall = (
        " / ".join(_us(one[f"{clock}{name}"]) for name in ("median_s", "p90_s", "p99_s"))
        for clock in ("", "wall_")
    )
    aims = f"{_us(TURN_MEDIAN_S)} / - / {_us(TURN_P99_S)} us"
    largest = sorted(one["shares_s"].items(), key=lambda share: -share[1])
    shares = ", ".join(f"{name} {_us(seconds)}" for name, seconds in largest)
    return [
        f"| {what}: median / p90 / p99 | {cpu} us | {aims} |",
        f"| the same by the wall's clock | {wall} us | |",
        f"| of that per turn, mean | {shares} us | |",
    ]


def _layerwise(one: Mapping[str, Any]) -> str:
    what = f"prefill of {one['tokens']} tokens, {one['layers_at_once']} layers at a time"
    slower = one["took_s"] / one["whole_s"] - 1.0
    return f"| {what}, against {_ms(one['whole_s'])} ms whole | {slower:+.1%} | {LAYERWISE_RATIO:+.1%} |"


def _memory(found: list[Mapping[str, Any]]) -> list[str]:
    rows = []
    for one in found:
        detail = "".join(f", {one[name]} {name}" for name in ("groups", "sms", "tokens") if name in one)
        rows.append(f"| memory: {one['of']}{detail} | {one['bytes'] / 2**30:.2f} GiB | |")
    card_bytes = max((one["bytes"] for one in found if one["of"] == "free before the weights"), default=0)
    if card_bytes:
        # Stock SGLang has a prefill on all SMs as well; what the other streams keep is ours.
        kept = [one["bytes"] for one in found if one["of"] == "activations"][1:]
        ours = [one["bytes"] for one in found if one["of"] in {"contexts", "graphs of all groups"}]
        for what, some in (("contexts and graphs", ours), ("those and further streams", ours + kept)):
            rows.append(f"| memory of {what} | {sum(some) / card_bytes:.1%} | {MEMORY_RATIO:.0%} |")
    return rows


def _us(seconds: float) -> str:
    return f"{1e6 * seconds:.0f}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.2f}"
