"""Where one can jump to and what can be done, found by a part of its name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pdmuxd.tui.show.actions import ACTIONS
from pdmuxd.tui.show.status import TABS
from pdmuxd.tui.state.answers import known
from pdmuxd.tui.state.console import ConsoleState


@dataclass(frozen=True, slots=True)
class Place:
    """One entry; `action` is run by the application."""

    name: str
    says: str
    action: str


PLACES = (
    Place("admin", "change tenants, keys, profiles, the policy (A)", "admin"),
    Place("alarms", "alarms with their beginning and end (!)", "alarms"),
    Place("zoom", "the next panel on the whole screen (z)", "zoom"),
    Place("csv", "the table of this screen as a CSV file (C)", "csv"),
    Place("theme", "dark or light (t)", "theme"),
    Place("reconnect", "connect to the daemon now (r)", "retry"),
    Place("help", "this screen and its keys (?)", "help"),
    Place("quit", "leave the console (q)", "quit"),
)


def places(state: ConsoleState) -> list[Place]:
    """All entries: screens, tenants, actions."""
    names = [one.tenant for one in state.tenants.tenants] if state.tenants is not None else []
    listed = [one.name for one in known(state.answers.tenants) or ()]
    tenants = list(dict.fromkeys([*names, *listed]))
    return [
        *(Place(tab.name, f"screen {tab.key}", f"open('{tab.name}')") for tab in TABS),
        *(Place(name, "tenant: targets, misses and why", f"tenant('{name}')") for name in tenants),
        *(Place(f"edit {name}", "edit the targets of this tenant", f"edit('{name}')") for name in tenants),
        *(Place(f"engine {one.name}", one.does, f"engine('{one.name}')") for one in ACTIONS),
        *PLACES,
    ]


def matching(found: Sequence[Place], typed: str) -> list[Place]:
    """Entries whose names begin with what was typed, then those that hold its letters in that order."""
    wanted = typed.strip().lower()
    begins = [one for one in found if one.name.startswith(wanted)]
    holds = [one for one in found if wanted in one.name and one not in begins]
    loosely = [one for one in found if _holds(one.name, wanted) and one not in begins and one not in holds]
    return begins + holds + loosely


def _holds(name: str, letters: str) -> bool:
    rest = iter(name)
    return all(letter in rest for letter in letters if letter != " ")
