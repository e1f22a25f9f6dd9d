"""What holds for all tests: how fast the machine is must not matter, speed is for benchmarks."""

import gc
import os
import sys

import process_logs
import pytest
from hypothesis import HealthCheck, settings
from quick_stops import stop_quickly
from shared_statements import share_statements

settings.register_profile("patient", settings(deadline=None, suppress_health_check=[HealthCheck.too_slow]))
settings.load_profile("patient")

share_statements()
stop_quickly()

# Without compiled modules each daemon that a test starts would compile all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# Settings of whoever runs the tests, whose shell may still have those that the README exports.
for name in [name for name in os.environ if name.startswith("PDMUXD_")]:
    if name not in ("PDMUXD_TEST_DATABASE", "PDMUXD_UPDATE_SCREENS"):
        del os.environ[name]
sys.dont_write_bytecode = False

LAST_LINES = 15
"""Of a failure: the assertion and where it is."""


@pytest.hookimpl(trylast=True)  # after the hooks that mark the tests of a folder
def pytest_collection_modifyitems(items):
    """In CI, tests of whole processes are tried twice more, for they share their machine; no other is."""
    if os.environ.get("CI"):
        for item in items:
            if item.get_closest_marker("e2e") or item.get_closest_marker("sglang"):
                item.add_marker(pytest.mark.flaky(reruns=2))


def pytest_collection_finish():
    _freeze()


def pytest_sessionfinish():
    if (stores := sys.modules.get("stores")) is not None:
        stores.close_postgres_server()


def pytest_runtest_teardown(item, nextitem):
    """Some tests run what thaws everything when it ends."""
    if nextitem is not None and nextitem.path != item.path and gc.get_freeze_count() == 0:
        _freeze()


def _freeze():
    """Modules and collected tests stay to the end: a collection of garbage need not walk through them."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item):
    process_logs.forget_ended()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """With a failure go the ends of the logs of the processes that the test used."""
    report = yield
    if report.failed:
        report.sections += process_logs.ends()
    return report


def pytest_terminal_summary(terminalreporter):
    """At the end of the output, what went wrong in a few lines each: here, or before it was tried again."""
    for word in ("rerun", "error", "failed"):
        for report in terminalreporter.stats.get(word, ()):
            terminalreporter.section(f"{word}: {report.nodeid}", sep="-")
            terminalreporter.line("\n".join(report.longreprtext.splitlines()[-LAST_LINES:]))
