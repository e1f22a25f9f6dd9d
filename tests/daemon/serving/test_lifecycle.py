"""Settings read again: which come into force, and what is said of the others."""

from __future__ import annotations

import pytest
from settings_files import load, toml

from pdmuxd.controlplane.node.daemon_actions import Reloaded
from pdmuxd.daemon.serving.lifecycle import ENGINE, FIXED, LIVE, Lifecycle
from pdmuxd.daemon.settings.keys import all_keys
from pdmuxd.engine.core.errors import ConflictError, InvalidValueError, SettingsError


@pytest.fixture
def change(tmp_path):
    """A daemon whose pdmuxd.toml is rewritten: its lifecycle, and what was applied."""

    def changed(text):
        applied = []
        before = load(config=toml(tmp_path, ""))
        again = toml(tmp_path, text)
        return Lifecycle(before, reread=lambda: load(config=again), apply=(applied.append,)), applied

    return changed


@pytest.mark.parametrize(
    ("text", "reloaded"),
    [
        ("", Reloaded()),
        (
            "drain_timeout_s = 5\n[http]\nkeep_alive_s = 9\n",
            Reloaded(in_force=("drain_timeout_s", "http.keep_alive_s")),
        ),
        ("[engine]\npolicy = 'muxwise'\n", Reloaded(needs_engine_restart=("engine.policy",))),
        ("[engine.sglang]\ntp_size = 2\n", Reloaded(needs_engine_restart=("engine.sglang.tp_size",))),
        ("[data]\nmax_connections = 9\n", Reloaded(needs_upgrade=("data.max_connections",))),
        ("[data]\nport = 9\n", Reloaded(needs_restart=("data.port",))),
    ],
)
def test_each_changed_setting_is_named_with_what_it_takes(change, text, reloaded):
    lifecycle, applied = change(text)
    assert lifecycle.reload() == reloaded
    assert applied == [lifecycle.settings]
    assert lifecycle.reload() == Reloaded(), "it has been told"


def test_nothing_changes_when_a_value_is_not_allowed(change):
    lifecycle, applied = change("[data]\nport = -1\n")
    before = lifecycle.settings
    with pytest.raises(InvalidValueError, match=r"nothing was reloaded: data\.port"):
        lifecycle.reload()
    assert (applied, lifecycle.settings) == ([], before)
    lifecycle.reload_by_signal()


def test_nothing_changes_when_a_part_refuses(tmp_path):
    def refuse(_):
        raise SettingsError("there is no model /m")

    loaded = load(config=toml(tmp_path, ""))
    lifecycle = Lifecycle(loaded, reread=lambda: loaded, apply=(refuse,))
    with pytest.raises(InvalidValueError, match="no model"):
        lifecycle.reload()


async def test_there_is_no_upgrade_without_a_place_to_give():
    with pytest.raises(ConflictError):
        await Lifecycle(load(), reread=None, apply=()).upgrade(migrate=False)


def test_the_named_settings_exist():
    assert {*LIVE, *ENGINE, *FIXED} <= {key.name for key in all_keys()}
