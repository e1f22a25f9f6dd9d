"""A tenant's fields as options of commands."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, get_args

import typer

from pdmuxd.engine.core.slo import LateAction, PriorityClass

NONE = "none"
"""What is written on the command line for null."""

TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]


def _classes(incomplete: str) -> list[str]:
    return [one for one in get_args(PriorityClass) if one.startswith(incomplete)]


def _actions(incomplete: str) -> list[str]:
    return [one for one in get_args(LateAction) if one.startswith(incomplete)]


@dataclass(frozen=True, kw_only=True)
class SloOptions:
    """Latency targets; None is not given."""

    ttft_fixed_ms: Annotated[
        float | None,
        typer.Option("--ttft-fixed-ms", help="TTFT target, fixed part.", show_default=False),
    ] = None
    ttft_per_1k_ms: Annotated[
        float | None,
        typer.Option(
            "--ttft-per-1k-ms", help="TTFT target, per 1,000 new prompt tokens.", show_default=False
        ),
    ] = None
    tbt_ms: Annotated[
        float | None,
        typer.Option("--tbt-ms", help="Target for each gap between two tokens.", show_default=False),
    ] = None
    attainment: Annotated[
        float | None,
        typer.Option("--attainment", help="Share that must meet a target, such as 0.99.", show_default=False),
    ] = None
    e2e_ms: Annotated[
        str | None,
        typer.Option(
            "--e2e-ms",
            metavar="MS",
            help="Target for a whole answer, or for all of a session's calls; none: no target.",
            show_default=False,
        ),
    ] = None

    def given(self) -> dict[str, float | None]:
        """The options that are given, under their names in the REST interface. Raises: BadParameter."""
        named = {
            "ttft_fixed_ms": self.ttft_fixed_ms,
            "ttft_per_1k_new_tokens_ms": self.ttft_per_1k_ms,
            "tbt_ms": self.tbt_ms,
            "attainment_ratio": self.attainment,
        }
        given: dict[str, float | None] = {name: value for name, value in named.items() if value is not None}
        if self.e2e_ms is not None:
            given["e2e_ms"] = milliseconds_or_none(self.e2e_ms, "--e2e-ms")
        return given


@dataclass(frozen=True, kw_only=True)
class ShareOptions:
    """A tenant's share of the GPU; None is not given."""

    max_in_flight: Annotated[
        int | None,
        typer.Option("--max-in-flight", help="Requests that may be open at once.", show_default=False),
    ] = None
    priority_class: Annotated[
        str | None,
        typer.Option(
            "--class",
            metavar="CLASS",
            help="Whose requests go first: interactive, standard or batch.",
            autocompletion=_classes,
        ),
    ] = None
    weight: Annotated[
        float | None,
        typer.Option("--weight", help="Its part of what is shared, in relation to the others' weights."),
    ] = None
    max_wait_ms: Annotated[
        str | None,
        typer.Option(
            "--max-wait-ms", metavar="MS", help="The longest wait in the queue; none: the engine's."
        ),
    ] = None
    late_action: Annotated[
        str | None,
        typer.Option(
            "--late-action",
            metavar="ACTION",
            help="What becomes of requests that can only be late: serve or refuse.",
            autocompletion=_actions,
        ),
    ] = None
    count_cached: Annotated[
        bool | None,
        typer.Option(
            "--count-cached/--no-count-cached",
            help="Whether limits of tokens count those from the prefix cache.",
            show_default=False,
        ),
    ] = None
    max_tbt_cost: Annotated[
        str | None,
        typer.Option(
            "--max-tbt-cost",
            metavar="SHARE",
            help="How much of all tenants' prefill time, 0 to 1, this TBT target may cost; none: no limit.",
        ),
    ] = None

    def given(self) -> dict[str, object]:
        """The options that are given, under their names in the REST interface. Raises: BadParameter."""
        named = {
            "max_in_flight": self.max_in_flight,
            "priority_class": self.priority_class,
            "weight": self.weight,
            "late_action": self.late_action,
            "count_cached_tokens": self.count_cached,
        }
        given: dict[str, object] = {name: value for name, value in named.items() if value is not None}
        if self.max_wait_ms is not None:
            given["max_wait_ms"] = number_or_none(self.max_wait_ms, "--max-wait-ms")
        if self.max_tbt_cost is not None:
            given["max_tbt_cost_ratio"] = share_or_none(self.max_tbt_cost, "--max-tbt-cost")
        return given


def number_or_none(text: str, option: str) -> int | None:
    """A whole number, or None for `none`. Raises: BadParameter."""
    if text == NONE:
        return None
    try:
        return int(text)
    except ValueError:
        raise typer.BadParameter(
            f"{option} is {text[:40]!r}; allowed are a whole number, or {NONE}"
        ) from None


def milliseconds_or_none(text: str, option: str) -> float | None:
    """A number of milliseconds, or None for `none`; the daemon knows its range. Raises: BadParameter."""
    if text == NONE:
        return None
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"{option} is {text[:40]!r}; allowed are milliseconds, or {NONE}") from None


def share_or_none(text: str, option: str) -> float | None:
    """A share from 0 to 1, or None for `none`. Raises: BadParameter."""
    if text == NONE:
        return None
    try:
        share = float(text)
    except ValueError:
        share = math.nan
    if not 0.0 <= share <= 1.0:
        raise typer.BadParameter(f"{option} is {text[:40]!r}; allowed are a number from 0 to 1, or {NONE}")
    return share
