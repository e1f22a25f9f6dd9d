"""Runs all checks, in the order in which a person would look."""

from __future__ import annotations

from collections.abc import Iterator

from pdmuxd.daemon.doctor.findings import Finding, fail, ok
from pdmuxd.daemon.doctor.gpu import check_gpu, check_sglang
from pdmuxd.daemon.doctor.model import check_folder
from pdmuxd.daemon.doctor.network import check_ports
from pdmuxd.daemon.doctor.probes import Probes
from pdmuxd.daemon.doctor.storage import check_database, check_profile, check_runtime_dir, check_state_dir
from pdmuxd.daemon.doctor.system import (
    check_clock,
    check_open_files,
    check_python,
    check_quota,
    check_systemd,
)
from pdmuxd.daemon.settings import LoadedSettings
from pdmuxd.engine.core.errors import SettingsError


def examine(loaded: LoadedSettings, probes: Probes, model: str | None = None) -> Iterator[Finding]:
    """All findings. Wrong settings are one of them; what depends on settings is then left out.

    `model` is a folder to look at in place of the settings'.
    """
    first = probes.clocks()
    yield check_python(probes.python())
    usable = True
    try:
        yield ok("settings", f"valid; read from {loaded.config_file or 'no file'}")
    except SettingsError as error:
        usable = False
        yield fail("settings", str(error), "correct it; `pdmuxd config example` lists what is allowed")
    yield from check_gpu(probes.cuda_driver(), probes.driver_version())
    yield from check_sglang(probes.installed_version("sglang"), probes.installed_version("cuda-python"))
    if usable:
        section = loaded.settings.engine.sglang
        if (folder := model or section.model) is not None:
            yield from check_folder(folder, section, probes.cuda_driver())
        yield from _of_settings(loaded, probes)
    yield check_quota(probes.quota_cores())
    yield check_systemd(running=probes.systemd_running(), notify_socket=probes.notify_socket())
    yield from check_clock(first, probes.clocks(), synchronised=probes.clock_synchronised())


def _of_settings(loaded: LoadedSettings, probes: Probes) -> Iterator[Finding]:
    yield from check_ports(loaded.settings, probes.bind, probes.is_pdmuxd, probes.holder_of)
    yield from check_state_dir(loaded, probes.look_at)
    yield check_runtime_dir(loaded, probes.look_at)
    yield check_database(loaded, probes.database_revision)
    yield from check_profile(loaded, probes.database_revision, probes.active_profile)
    yield check_open_files(probes.open_files_limit(), loaded.settings.data.max_in_flight)
