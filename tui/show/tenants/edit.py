"""An edit of targets: what was typed, what it changes, what the predictors say of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from pdmuxd.tui.client.printable import printable
from pdmuxd.tui.client.rest import Refusal
from pdmuxd.tui.client.wire import SloOut, WhatIfOut
from pdmuxd.tui.show import formats
from pdmuxd.tui.show.lines import Line, line, wrap
from pdmuxd.tui.show.roles import Role


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One target, by its name in the REST interface, with what is allowed."""

    name: str
    label: str
    least: float
    most: float
    may_be_none: bool = False
    """No target, where nothing is typed."""

    @property
    def allowed(self) -> str:
        between = f"{formats.plain(self.least)} to {formats.plain(self.most)}"
        return f"{between}, or nothing for no target" if self.may_be_none else between


FIELDS = (
    Field(name="ttft_fixed_ms", label="TTFT, fixed part, ms", least=1, most=600_000),
    Field(name="ttft_per_1k_new_tokens_ms", label="TTFT, per 1,000 new tokens, ms", least=0, most=600_000),
    Field(name="tbt_ms", label="TBT, ms", least=1, most=10_000),
    Field(name="attainment_ratio", label="share that must be in time", least=0.5, most=0.9999),
    Field(name="e2e_ms", label="whole answer, ms", least=1, most=86_400_000, may_be_none=True),
)


def typed_of(value: float | None) -> str:
    """A value as it is typed; empty for none."""
    return "" if value is None else formats.plain(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """What was typed: values by field, and what is wrong with the others."""

    values: Mapping[str, float | None]
    errors: tuple[str, ...] = ()

    def changes(self, before: SloOut) -> list[tuple[Field, float | None, float | None]]:
        """(field, before, after) for what differs."""
        found: list[tuple[Field, float | None, float | None]] = []
        for field in FIELDS:
            old: float | None = getattr(before, field.name)
            new = self.values.get(field.name, old)
            if new != old:
                found.append((field, old, new))
        return found


def draft(typed: Mapping[str, str]) -> Draft:
    """Read what was typed."""
    values: dict[str, float | None] = {}
    errors = []
    for field in FIELDS:
        if field.may_be_none and not typed[field.name].strip():
            values[field.name] = None
            continue
        value = formats.number(typed[field.name])
        if value is None or not field.least <= value <= field.most:
            errors.append(f"{field.label} is {typed[field.name]!r}; allowed are {field.allowed}")
        else:
            values[field.name] = value
    return Draft(values=values, errors=tuple(errors))


def changes_text(changes: list[tuple[Field, float | None, float | None]]) -> list[Line]:
    """A line for each change, with the value before and after."""
    return [
        line(
            (f"{field.label:<34}", Role.DIM),
            f"{typed_of(old) or formats.NONE:>9}  →  ",
            (f"{typed_of(new) or formats.NONE:>9}", Role.STRONG),
        )
        for field, old, new in changes
    ]


def what_if_text(answer: WhatIfOut | Refusal | None, width: int, now: WhatIfOut | None = None) -> list[Line]:
    """Feasible or not, which split, and what it costs prefill against what holds now."""
    if answer is None:
        return [line(("asking the live predictors ...", Role.DIM))]
    if isinstance(answer, Refusal):
        said = "this daemon predicts nothing" if answer.is_missing_route else answer.detail
        return wrap(f"no prediction: {said}", width, Role.WARN)
    mark, role = ("+ ", Role.GOOD) if answer.feasible else ("! ", Role.BAD)
    figures = []
    speed = answer.prefill_tokens_per_s
    if speed is not None:
        text = f"prefill {formats.count(speed)} tokens/s"
        if now is not None and now.prefill_tokens_per_s:
            change = speed / now.prefill_tokens_per_s - 1.0
            text += f" ({change:+.0%} against {formats.plain(now.tbt_ms)} ms)"
        figures.append(text)
    if answer.lowest_feasible_tbt_ms is not None:
        figures.append(f"lowest feasible target {formats.ms(answer.lowest_feasible_tbt_ms)} ms")
    return [
        *wrap(mark + printable(answer.text or answer.reason or ""), width, role),
        *wrap(", ".join(figures), width),
    ]


def assumed_text(answer: WhatIfOut | Refusal | None, width: int) -> list[Line]:
    """The load that the answer holds for."""
    if not isinstance(answer, WhatIfOut):
        return []
    load = answer.assumed
    return wrap(
        f"for {load.decode_bs} decoding with {formats.count(load.decode_context_tokens)} tokens each, "
        f"beside a prefill of {formats.count(load.prefill_new_tokens)} ({load.from_} load)",
        width,
        Role.DIM,
    )


def conflict_text(tenant: str, base: SloOut, theirs: SloOut, width: int) -> list[Line]:
    """Someone else changed the targets since they were read."""
    lines = wrap(
        f"! Nothing was applied: someone else set version {theirs.version} of {tenant}'s targets while you "
        f"edited version {base.version}. Theirs against what you began with:",
        width,
        Role.BAD,
    )
    changed = Draft(values={field.name: getattr(theirs, field.name) for field in FIELDS}).changes(base)
    return [*lines, *(changes_text(changed) or [line("the same values")])]
