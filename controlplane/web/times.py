"""The time that a page shows: `?at=` is its end, now unless given; `?window=` its length."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Literal, get_args
from urllib.parse import urlencode

from fastapi import Query
from pydantic import AwareDatetime

from pdmuxd.controlplane.api.history import seconds_of
from pdmuxd.controlplane.events.messages import instant
from pdmuxd.controlplane.history.history import Period
from pdmuxd.controlplane.history.periods import DAY_S, HOUR_S, MINUTE_S

WindowName = Literal["30m", "2h", "24h", "7d", "30d"]
LENGTH_S: dict[WindowName, int] = {
    "30m": 30 * MINUTE_S,
    "2h": 2 * HOUR_S,
    "24h": DAY_S,
    "7d": 7 * DAY_S,
    "30d": 30 * DAY_S,
}
STEP_S: dict[WindowName, int] = {
    "30m": MINUTE_S,
    "2h": MINUTE_S,
    "24h": 15 * MINUTE_S,
    "7d": HOUR_S,
    "30d": 6 * HOUR_S,
}
"""About a hundred points each: a column of a picture is then some pixels wide on a telephone."""
LIVE_STEP_S = 15
"""Of the last half hour, which is kept by the second."""
IN_WORDS: dict[WindowName, str] = {
    "30m": "half hour",
    "2h": "2 hours",
    "24h": "24 hours",
    "7d": "7 days",
    "30d": "30 days",
}

At = Annotated[AwareDatetime | None, Query(description="The end of what is shown; now unless given.")]
Window = Annotated[WindowName, Query(description="How far back.")]
MaybeWindow = Annotated[WindowName | None, Query(description="How far back; all unless given.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a page shows the state of. `end_s` and `now_s` are Unix time."""

    window: WindowName
    now_s: float
    at_s: float | None = None
    also: Mapping[str, str] = field(default_factory=dict)
    """What else the page was asked, which its other times are asked too."""
    may_be_all: bool = False
    """Whether the page shows the newest of all times unless it is told a time."""
    is_all: bool = False
    newest: str = "all"
    """What that is called: `all`, or `now` on a page of how things are."""

    @classmethod
    def of(cls, at: datetime | None, window: WindowName, now_s: float) -> Shown:
        """Read the query. Raises: InvalidValueError."""
        at_s = None if at is None else seconds_of("at", at)
        return cls(window=window, now_s=now_s, at_s=at_s)

    @classmethod
    def asked(
        cls,
        at: datetime | None,
        window: WindowName | None,
        now_s: float,
        also: Mapping[str, str],
        newest: str = "all",
    ) -> Shown:
        """The same of a page that shows the newest of all times unless told. Raises: InvalidValueError."""
        return cls(
            window=window or "30m",
            now_s=now_s,
            at_s=None if at is None else seconds_of("at", at),
            also={name: value for name, value in also.items() if value},
            may_be_all=True,
            is_all=at is None and window is None,
            newest=newest,
        )

    @classmethod
    def now_unless(cls, at: datetime | None, window: WindowName | None, now_s: float) -> Shown:
        """The same of a page of how things are. Raises: InvalidValueError."""
        return cls.asked(at, window, now_s, {}, newest="now")

    @property
    def is_live(self) -> bool:
        """Whether it goes on as time does."""
        return self.at_s is None

    @property
    def end_s(self) -> float:
        return self.now_s if self.at_s is None else self.at_s

    @property
    def end(self) -> datetime:
        return instant(self.end_s)

    @property
    def now(self) -> datetime:
        return instant(self.now_s)

    @property
    def minutes(self) -> Period:
        """The points of a picture of what is known by the minute at least, as a tenant's SM time is."""
        return Period(
            start_s=self.end_s - LENGTH_S[self.window], end_s=self.end_s, step_s=STEP_S[self.window]
        )

    @property
    def period(self) -> Period:
        if self.is_live and self.window == "30m":
            return Period(start_s=self.end_s - LENGTH_S[self.window], end_s=self.end_s, step_s=LIVE_STEP_S)
        return self.minutes

    @property
    def in_words(self) -> str:
        """`last half hour`, or `half hour until ...`."""
        return f"last {IN_WORDS[self.window]}" if self.is_live else f"{IN_WORDS[self.window]} before"

    def query(self, **changes: str | None) -> str:
        """The query of an address that shows this, with other values or without them; may be empty."""
        is_default = self.is_all if self.may_be_all else self.window == "30m"
        given: dict[str, str | None] = {
            **self.also,
            "at": None if self.at_s is None else f"{instant(self.at_s):%Y-%m-%dT%H:%M:%SZ}",
            "window": None if is_default else self.window,
        }
        kept = {name: value for name, value in (given | changes).items() if value is not None}
        return f"?{urlencode(kept)}" if kept else ""

    def windows(self) -> list[tuple[str, str, bool]]:
        """(query, name, whether it is shown) of each length."""
        everything = [(self.query(at=None, window=None), self.newest, self.is_all)] if self.may_be_all else []
        return everything + [
            (
                self.query(window=None if name == "30m" and not self.may_be_all else name),
                name,
                name == self.window and not self.is_all,
            )
            for name in get_args(WindowName)
        ]

    def earlier(self) -> str:
        """The query of the window before."""
        return self.query(at=f"{instant(self.end_s - LENGTH_S[self.window]):%Y-%m-%dT%H:%M:%SZ}")

    def later(self) -> str | None:
        """The query of the window behind; None while this is live."""
        if self.at_s is None:
            return None
        behind_s = self.at_s + LENGTH_S[self.window]
        return self.query(at=None if behind_s >= self.now_s else f"{instant(behind_s):%Y-%m-%dT%H:%M:%SZ}")
