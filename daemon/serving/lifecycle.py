"""An operator's actions on the daemon itself: settings read again, and a new process in its place."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import structlog

from pdmuxd.controlplane.node.daemon_actions import DutyState, Reloaded
from pdmuxd.controlplane.web.settings import SettingInForce
from pdmuxd.daemon.process.duty import Duty
from pdmuxd.daemon.settings import LoadedSettings, Settings
from pdmuxd.daemon.settings.explain import shown
from pdmuxd.daemon.settings.keys import all_keys
from pdmuxd.daemon.settings.show import effective
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, PdmuxdError, SettingsError

LIVE = (
    *("log.level", "log.format", "drain_timeout_s", "upgrade_drain_timeout_s"),
    *("data.max_body_bytes", "data.max_in_flight", "data.max_outputs", "data.max_stops"),
    *("data.max_logprobs", "data.max_prompt_tokens", "data.max_body_values", "data.first_byte_timeout_s"),
    *("data.engine_wait_s", "data.quarantine_s"),
    *("http.max_header_bytes", "http.max_headers", "http.header_timeout_s", "http.body_timeout_s"),
    *("http.keep_alive_s", "http.write_timeout_s"),
)
"""In force as soon as they are read."""
ENGINE = (
    *("engine.policy", "engine.start_timeout_s"),
    *("engine.restart_backoff_initial_s", "engine.restart_backoff_max_s"),
)
"""These settings, and those of `engine.sglang`, take effect when the next engine is started."""
FIXED = ("state_dir", "runtime_dir", "data.host", "data.port", "admin.host", "admin.port")
"""What a new process takes over from the old one."""

Apply = Callable[[Settings], None]

log = structlog.get_logger("pdmuxd.daemon")


class GivePlace(Protocol):
    """Starts a new daemon."""

    def __call__(self, *, migrate: bool) -> Awaitable[str]:
        """The new one's version. Raises: ConflictError."""


class Lifecycle:
    """Implements the control plane's DaemonActions. `settings` are those in force."""

    def __init__(
        self,
        loaded: LoadedSettings,
        *,
        reread: Callable[[], LoadedSettings] | None,
        apply: Sequence[Apply],
        give_place: GivePlace | None = None,
    ) -> None:
        """`give_place` starts another daemon, for `upgrade`."""
        self.settings = loaded.settings
        self._started = self._loaded = loaded
        self._reread = reread
        self._apply = apply
        self._give_place = give_place
        self.duties: tuple[Duty, ...] = ()

    def reload(self) -> Reloaded:
        """Read the settings again. Raises: InvalidValueError, ConflictError; nothing has changed then."""
        if self._reread is None:
            raise ConflictError("this daemon was not started from settings that could be read again")
        try:
            loaded = self._reread()
            settings = loaded.settings
            changed = changed_keys(self._loaded.settings, settings)
            for apply in self._apply:
                apply(settings)
        except SettingsError as error:
            raise InvalidValueError("settings", f"nothing was reloaded: {error}") from error
        self.settings, self._loaded = settings, loaded
        reloaded = _sorted(changed)
        log.info(
            "settings reloaded",
            in_force=reloaded.in_force,
            needs_engine_restart=reloaded.needs_engine_restart,
            needs_upgrade=reloaded.needs_upgrade,
            needs_restart=reloaded.needs_restart,
        )
        return reloaded

    def reload_by_signal(self) -> None:
        """Reload as `reload` does; what is wrong is only logged."""
        try:
            self.reload()
        except PdmuxdError as error:
            log.error("settings not reloaded", reason=str(error))

    def in_force(self) -> Mapping[str, SettingInForce]:
        """Every setting, passwords masked; what was read since and waits for a new process is named apart."""
        started, read = effective(self._started), effective(self._loaded)
        found = {}
        for key in all_keys():
            is_read = key.name in LIVE or _is_engines(key.name)
            row, new = (read if is_read else started)[key.name], read[key.name]
            waits = ""
            if new["value"] != started[key.name]["value"] and key.name not in LIVE:
                takes = "engine is started" if _is_engines(key.name) else "daemon is upgraded or restarted"
                waits = f"{shown(key.name, new['value'])} when the next {takes}"
            found[key.name] = SettingInForce(
                value=row["value"], origin=str(row["origin"]), description=key.summary, waits=waits
            )
        return found

    def duty_states(self) -> tuple[DutyState, ...]:
        return tuple(duty.state() for duty in self.duties)

    async def upgrade(self, *, migrate: bool) -> str:
        """Give the place to a new daemon. Raises: ConflictError."""
        if self._give_place is None:
            raise ConflictError("this daemon has no place to give")
        return await self._give_place(migrate=migrate)


def changed_keys(before: Settings, after: Settings) -> tuple[str, ...]:
    """The dotted keys whose values differ."""
    old, new = _flat("", before.model_dump()), _flat("", after.model_dump())
    return tuple(key for key in new if new[key] != old.get(key))


def _flat(prefix: str, values: dict[str, object]) -> dict[str, object]:
    flat: dict[str, object] = {}
    for name, value in values.items():
        flat |= _flat(f"{prefix}{name}.", value) if isinstance(value, dict) else {prefix + name: value}
    return flat


def _is_engines(key: str) -> bool:
    return key in ENGINE or key.startswith("engine.sglang.")


def _sorted(changed: Sequence[str]) -> Reloaded:
    """What nobody has thought of takes a new process."""
    engine = [key for key in changed if _is_engines(key)]
    rest = [key for key in changed if key not in LIVE and key not in engine]
    return Reloaded(
        in_force=tuple(key for key in changed if key in LIVE),
        needs_engine_restart=tuple(engine),
        needs_upgrade=tuple(key for key in rest if key not in FIXED),
        needs_restart=tuple(key for key in rest if key in FIXED),
    )
