"""What a piece of text is, apart from how it looks."""

from __future__ import annotations

from enum import StrEnum


class Role(StrEnum):
    """A palette has a paint for each."""

    PLAIN = "plain"
    DIM = "dim"
    STRONG = "strong"
    TITLE = "title"
    RULE = "rule"
    KEY = "key"
    """A key that can be pressed."""
    TAB = "tab"
    """The tab of the screen that is open."""
    CURSOR = "cursor"
    """The row that Enter opens."""
    CURSOR_BAD = "cursor_bad"
    """What is bad in that row; so is the next for warnings."""
    CURSOR_WARN = "cursor_warn"
    PREFILL = "prefill"
    """Text about prefill; so are the next two of their kind."""
    DECODE = "decode"
    IDLE = "idle"
    PREFILL_FILL = "prefill_fill"
    """Cells of a bar; so are the next two of their kind."""
    DECODE_FILL = "decode_fill"
    IDLE_FILL = "idle_fill"
    PREFILL_ON_DECODE = "prefill_on_decode"
    """A partly filled cell of a chart: the first below the second; so are the next two."""
    PREFILL_ON_IDLE = "prefill_on_idle"
    DECODE_ON_IDLE = "decode_on_idle"
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"
    ALERT = "alert"
    """A banner that asks for attention."""
    NOTICE = "notice"
    """A banner that explains."""
    HEAT_1 = "heat_1"
    HEAT_2 = "heat_2"
    HEAT_3 = "heat_3"
    HEAT_4 = "heat_4"
    HEAT_5 = "heat_5"


HEATS = (Role.HEAT_1, Role.HEAT_2, Role.HEAT_3, Role.HEAT_4, Role.HEAT_5)
