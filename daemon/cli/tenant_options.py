"""A tenant's fields as options of commands, and as what is printed of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, get_args
from urllib.parse import quote

import typer

from pdmuxd.daemon.cli.output import instant, milliseconds
from pdmuxd.daemon.cli.slo import columns_of
from pdmuxd.engine.core.slo import LateAction, PriorityClass

NONE = "none"
"""What is written on the command line for null."""


def _classes(incomplete: str) -> list[str]:
    return [one for one in get_args(PriorityClass) if one.startswith(incomplete)]


def _actions(incomplete: str) -> list[str]:
    return [one for one in get_args(LateAction) if one.startswith(incomplete)]


TenantName = Annotated[str, typer.Argument(metavar="TENANT", help="The tenant's name.")]
MaxInFlight = Annotated[
    int | None,
    typer.Option("--max-in-flight", help="Requests that may be open at once.", show_default=False),
]
PriorityClassOption = Annotated[
    str | None,
    typer.Option(
        "--class",
        metavar="CLASS",
        help="Whose requests go first: interactive, standard or batch.",
        autocompletion=_classes,
    ),
]
WeightOption = Annotated[
    float | None,
    typer.Option("--weight", help="Its part of what is shared, in relation to the others' weights."),
]
MaxWait = Annotated[
    str | None,
    typer.Option("--max-wait-ms", metavar="MS", help="The longest wait in the queue; none: the engine's."),
]
CountCached = Annotated[
    bool | None,
    typer.Option(
        "--count-cached/--no-count-cached",
        help="Whether limits of tokens count those from the prefix cache.",
        show_default=False,
    ),
]
LateActionOption = Annotated[
    str | None,
    typer.Option(
        "--late-action",
        metavar="ACTION",
        help="What becomes of requests that can only be late: serve or refuse.",
        autocompletion=_actions,
    ),
]


def path_of(tenant: str) -> str:
    """Where the REST interface keeps a tenant."""
    return f"/tenants/{quote(tenant, safe='')}"


def given_fields(*, max_wait_ms: str | None = None, **fields: object) -> dict[str, object]:
    """The given options, under their names in the REST interface. Raises: BadParameter."""
    given = {name: value for name, value in fields.items() if value is not None}
    if max_wait_ms is not None:
        given["max_wait_ms"] = number_or_none(max_wait_ms, "--max-wait-ms")
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


def tenant_columns(tenant: Mapping[str, Any]) -> dict[str, object]:
    """What of a tenant fits the row of a table on a terminal of 80 columns."""
    slo = columns_of(tenant["slo"])
    return {
        "tenant": tenant["name"],
        "enabled": tenant["enabled"],
        "limit": tenant["max_in_flight"],
        "class": tenant["priority_class"],
        "weight": f"{tenant['weight']:g}",
        **{name: slo[name] for name in ("TTFT ms", "TBT ms", "share", "in force")},
    }


def tenant_fields(tenant: Mapping[str, Any]) -> dict[str, object]:
    """All of a tenant but its targets, a field a line."""
    wait = tenant["max_wait_ms"]
    limits = [f"{name} {limit['value']} ({limit['action']})" for name, limit in tenant["limits"].items()]
    return {
        "tenant": tenant["name"],
        "enabled": tenant["enabled"],
        "max in flight": tenant["max_in_flight"],
        "class": tenant["priority_class"],
        "weight": f"{tenant['weight']:g}",
        "longest wait": "the engine's" if wait is None else milliseconds(wait),
        "late requests": {"serve": "are served", "refuse": "are refused"}[tenant["late_action"]],
        "limits": ", ".join(limits) or "none but these",
        "cached tokens": "count" if tenant["count_cached_tokens"] else "do not count",
        "shares cache": tenant["cache_group"] or "no",
        "created": instant(tenant["created_at"]),
    }
