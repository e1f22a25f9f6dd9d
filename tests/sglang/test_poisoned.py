"""A request that ends every SGLang that gets it: two of them, and then it is refused; others are served."""

import contextlib

import poison_plugin
import pytest
import sglang_plugin
from daemon_process import Daemon, SharedDaemon, wait_until
from poisoning import SETTINGS, check_two_deaths
from sglang_processes import daemon_settings, environment

RESTART_S = 600
ALL_S = 2000
"""Three engines start, each within RESTART_S."""


def until(condition):
    wait_until(condition, within_s=RESTART_S)


@pytest.mark.timeout(ALL_S)
def test_a_poisoned_request_ends_two_engines_and_others_are_served(python, model, tmp_path_factory):
    def begin():
        folder = tmp_path_factory.mktemp("poison")
        own = sglang_plugin.install(folder, poison_plugin.NAME, "poison_plugin", [poison_plugin.__file__])
        settings = [*daemon_settings(python, model), *SETTINGS, f"engine.start_timeout_s={RESTART_S}"]
        folder = tmp_path_factory.mktemp("daemon")
        return Daemon(folder, settings=settings, environ=environment(**own), start_s=RESTART_S)

    with contextlib.closing(SharedDaemon(begin)) as shared:
        check_two_deaths(shared.get(), until, poison_plugin.POISON, poison_plugin.REASON)
