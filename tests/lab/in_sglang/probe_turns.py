"""The host's time in a turn of the loop that is ours: what SGLang's own calls and waiting take is left out.

Left out are the calls through the port that do what SGLang's own loop does (input, forming batches,
launching, reading results), waiting for the device, and sleeping. Looks into the prefix cache, observing,
deciding, measuring, telemetry and changing groups count. Only turns that launched something are timed.

Every second turn is timed by the thread's CPU time, the others by the wall's clock, which also counts waiting
for the interpreter's lock or for a core.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from operator import attrgetter
from statistics import quantiles
from typing import Any

SGLANGS = {
    "": ("take_input", "idle", "agree"),
    "decode": ("settle", "launch_decode", "launch_fused", "read", "nothing_launched"),
    "prefill": ("form_prefill", "launch_layers", "finish_prefill", "drop_prefill"),
}
"""Calls by the part of the port that has them."""
OURS = {
    "port": ("use_group", "reused_tokens"),
    "state": ("decode_shape",),
    "reporter": ("exchange", "send_step", "send_request"),
    "policy_runtime": ("decide", "learn"),
}
"""Calls whose share of our time is told, without what others of them take inside."""
LOOPS = {
    "ledger": ("watch", "admitted", "look_up", "give_step", "give_tokens"),
    "prefill": ("collect", "launch"),
    "_decode": ("launch", "launch_fused", "measure"),
    "_planner": ("plan",),
    "_planner._view": ("observe",),
    "_launches": ("carry_out",),
    "_step_feedback": ("stepped", "prefilled"),
}
"""The same of what a loop makes, by where it keeps it."""
ITEMISED = 8
"""One turn in so many is itemised, by the wall's clock, and tells the shares only: the timers of that take 15
microseconds."""
LAUNCHES = {"launch_decode", "launch_fused", "launch_layers"}
IDLE_S = 1.0


class TurnTimes:
    """Of one loop. The timers themselves take about 4 microseconds a turn by the wall's clock, and twice that
    where they read CPU time, which count as ours."""

    def __init__(
        self,
        *,
        port: Any,
        streams: Any,
        reporter: Any,
        policy_runtime: Any,
        write: Callable[[dict[str, Any]], None],
        clock: Callable[[], float] = time.perf_counter,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._wall_clock, self._cpu_clock = clock, cpu_clock
        self._clock = clock
        """Of this turn."""
        self._write = write
        self._depth = 0
        self._others_s = 0.0
        self._within_s = 0.0
        """Of the call under way, what calls inside it took that are told or left out themselves."""
        self._launched = False
        self._last_s = 0.0
        self._cpu_s: list[float] = []
        self._wall_s: list[float] = []
        self._itemised = 0
        """Turns whose shares were told."""
        self._itemising = False
        self._parts: dict[str, float] = {}
        """Of this turn."""
        self._shares: dict[str, float] = {}
        """Of the turns that were itemised."""
        for owner, (part, names) in zip(
            (port, port.state, reporter, policy_runtime), OURS.items(), strict=True
        ):
            self._itemise(owner, part, names)
        for part, names in SGLANGS.items():
            owner = getattr(port, part) if part else port
            # A class of its own, so that properties cost what they cost without the timers.
            owner.__class__ = self._timed(type(owner), names)
        streams.__class__ = self._timed(type(streams), ("wait",))
        self.sleep = self._excluded("sleep", time.sleep)

    def itemise(self, loop: Any) -> None:
        """Tell the shares of what this loop has made as well."""
        for part, names in LOOPS.items():
            self._itemise(attrgetter(part)(loop), part.rpartition(".")[2].lstrip("_"), names)

    def attach(self, loop: Any) -> None:
        """Time the turns of this class of loops from now on."""
        turn = loop.turn

        @functools.wraps(turn)
        def timed(one: Any) -> None:
            self._others_s, self._within_s, self._launched, self._parts = 0.0, 0.0, False, {}
            turns = len(self._cpu_s) + len(self._wall_s)
            self._itemising = (turns + self._itemised) % ITEMISED == 0
            on_wall = self._itemising or len(self._wall_s) < len(self._cpu_s)
            self._clock = self._wall_clock if on_wall else self._cpu_clock
            began_s = self._clock()
            turn(one)
            self._ended(self._clock() - began_s - self._others_s)

        loop.turn = timed

    def _ended(self, ours_s: float) -> None:
        now_s = self._wall_clock()
        if self._launched:
            if self._itemising:
                self._itemised += 1
                self._parts["the rest"] = ours_s - sum(self._parts.values())
                for name, seconds in self._parts.items():
                    self._shares[name] = self._shares.get(name, 0.0) + seconds
            else:
                (self._wall_s if self._clock is self._wall_clock else self._cpu_s).append(ours_s)
            self._last_s = now_s
        elif self._cpu_s and now_s - self._last_s > IDLE_S:
            self.tell()

    def tell(self) -> None:
        """The load is over: what it took."""
        if min(len(self._cpu_s), len(self._wall_s)) > 1:
            self._write(
                {
                    "what": "turns",
                    "turns": len(self._cpu_s) + len(self._wall_s) + self._itemised,
                    **_spread(self._cpu_s),
                    **{f"wall_{name}": seconds for name, seconds in _spread(self._wall_s).items()},
                    "shares_s": {name: s / self._itemised for name, s in self._shares.items()},
                }
            )
        self._cpu_s, self._wall_s, self._itemised, self._shares = [], [], 0, {}

    def _itemise(self, owner: Any, part: str, names: tuple[str, ...]) -> None:
        def shared(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
            return self._shared(f"{part}.{name}", call)

        owner.__class__ = _with_timers(type(owner), names, shared)

    def _timed(self, of: Any, names: tuple[str, ...]) -> Any:
        return _with_timers(of, names, self._excluded)

    def _shared(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            if not self._itemising:
                return call(*args, **kwargs)
            around_s, self._within_s = self._within_s, 0.0
            began_s = self._clock()
            try:
                return call(*args, **kwargs)
            finally:
                took_s = self._clock() - began_s
                self._parts[name] = self._parts.get(name, 0.0) + took_s - self._within_s
                self._within_s = around_s + took_s

        return timed

    def _excluded(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """The outermost call of those that are left out counts."""
        launches = name in LAUNCHES

        def timed(*args: Any, **kwargs: Any) -> Any:
            self._launched = self._launched or launches
            self._depth += 1
            began_s = self._clock()
            try:
                return call(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    took_s = self._clock() - began_s
                    self._others_s += took_s
                    self._within_s += took_s

        return timed


def _spread(seconds: list[float]) -> dict[str, float]:
    cuts = quantiles(seconds, n=100, method="inclusive")
    return {"median_s": cuts[49], "p90_s": cuts[89], "p99_s": cuts[98], "worst_s": max(seconds)}


def _with_timers(of: Any, names: tuple[str, ...], timer: Callable[[str, Any], Any]) -> Any:
    """The class with timers around these calls. Raises: AttributeError for one that it has not."""
    missing = [name for name in names if not hasattr(of, name)]
    if missing:
        raise AttributeError(f"{of.__name__} has no {missing[0]}: what probe_turns times is out of date")
    return type(of.__name__, (of,), {name: timer(name, getattr(of, name)) for name in names})
