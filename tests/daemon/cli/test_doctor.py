from __future__ import annotations

import dataclasses
import errno
import json
import socket
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from profiling import measured_profile
from stores import new_database, opened

from gpu_servers.model_folder import write_model_folder
from pdmuxd.daemon.cli.main import main
from pdmuxd.daemon.doctor import probes as real
from pdmuxd.daemon.doctor.findings import Finding, Verdict, worst
from pdmuxd.daemon.doctor.gpu import CudaDriver, Gpu
from pdmuxd.daemon.doctor.kernel_clock import is_synchronised
from pdmuxd.daemon.doctor.probes import Probes
from pdmuxd.daemon.doctor.run import examine
from pdmuxd.daemon.doctor.storage import Directory
from pdmuxd.daemon.doctor.system import ClockReading
from pdmuxd.daemon.process.lock import Holder
from pdmuxd.daemon.settings import DeferredSettings, LoadedSettings, load_settings
from pdmuxd.engine.core.errors import StoreError
from pdmuxd.engine.sglang.api.versions import REQUIREMENT, TESTED

H200 = CudaDriver(
    cuda=(12, 9), has_green_contexts=True, gpus=(Gpu(name="NVIDIA H200", sms=132, capability=(9, 0)),)
)
NOW = ClockReading(wall_s=1_790_000_000.0, monotonic_s=50.0)
GIB = 1 << 30

HEALTHY = Probes(
    python=lambda: (3, 12, 1),
    installed_version={"sglang": TESTED[-1], "cuda-python": "13.0.1"}.get,
    cuda_driver=lambda: H200,
    driver_version=lambda: "570.86.15",
    bind=lambda host, port: None,
    is_pdmuxd=lambda host, port: False,
    look_at=lambda path: Directory(path=path, writable=True, free_bytes=50 * GIB),
    database_revision=lambda url: "0001",
    active_profile=lambda url: "h200-llama-8b, version 2, of NVIDIA H200",
    open_files_limit=lambda: 65536,
    quota_cores=lambda: None,
    clocks=lambda: NOW,
    clock_synchronised=lambda: True,
    systemd_running=lambda: True,
    notify_socket=lambda: None,
)


def loaded(**overrides: object) -> LoadedSettings:
    return load_settings(None, {"state_dir": "/s", **overrides}, environ={}, search=())


def found(settings: LoadedSettings | None = None, **changed: object) -> dict[str, Finding]:
    probes = dataclasses.replace(HEALTHY, **changed)  # type: ignore[arg-type]
    return {finding.check: finding for finding in examine(settings or loaded(), probes)}


def test_every_verdict_is_ok_when_the_machine_is_healthy() -> None:
    findings = found()
    assert {finding.verdict for finding in findings.values()} == {Verdict.OK}
    assert list(findings) == [
        "python",
        "settings",
        "gpu",
        "driver",
        "cuda",
        "green contexts",
        "sglang",
        "cuda-python",
        "admin port",
        "data port",
        "state directory",
        "disk",
        "sockets",
        "database",
        "profile",
        "open files",
        "cpu quota",
        "systemd",
        "clock",
        "clock sync",
    ]
    assert "NVIDIA H200 (132 SMs)" in findings["gpu"].detail


def test_the_emulated_engine_is_announced_when_there_is_no_gpu() -> None:
    findings = found(cuda_driver=lambda: None, installed_version=lambda name: None)
    for check in ("gpu", "sglang"):
        assert findings[check].verdict is Verdict.INFO
        assert "the emulated engine will be used" in findings[check].detail
    assert not {"driver", "cuda", "green contexts", "cuda-python"} & set(findings)


def test_the_reason_is_given_when_the_driver_finds_no_gpu() -> None:
    driver = CudaDriver(cuda=(12, 9), has_green_contexts=True, error="CUDA_ERROR_NO_DEVICE")
    finding = found(cuda_driver=lambda: driver)["gpu"]
    assert finding.verdict is Verdict.INFO
    assert "CUDA_ERROR_NO_DEVICE" in finding.detail


@pytest.mark.parametrize(
    ("changed", "check", "says"),
    [
        ({"cuda": (12, 3)}, "cuda", "12.3"),
        ({"has_green_contexts": False}, "green contexts", "cuGreenCtxCreate"),
        ({"gpus": (Gpu(name="A100", sms=108, capability=(8, 0)),)}, "green contexts", "A100 is 8.0"),
    ],
)
def test_a_warning_says_what_to_do_when_green_contexts_are_not_supported(
    changed: dict[str, object], check: str, says: str
) -> None:
    driver = dataclasses.replace(H200, **changed)  # type: ignore[arg-type]
    finding = found(cuda_driver=lambda: driver)[check]
    assert finding.verdict is Verdict.WARN
    assert says in finding.detail
    assert finding.hint


def of_model(folder: str, *words: str, gb: float | None = 80, **sglang: object) -> dict[str, Finding]:
    memory = None if gb is None else int(gb * 1e9)
    gpu = Gpu(name="NVIDIA H100", sms=132, capability=(9, 0), memory_bytes=memory)
    probes = dataclasses.replace(HEALTHY, cuda_driver=lambda: dataclasses.replace(H200, gpus=(gpu,)))
    settings = loaded(**{"engine.sglang.extra_args": " ".join(words), **sglang})
    return {finding.check: finding for finding in examine(settings, probes, folder)}


def test_it_says_how_a_model_would_be_served_before_anything_is_loaded(tmp_path: Path) -> None:
    folder = str(write_model_folder("qwen3-30b-a3b", tmp_path))
    findings = of_model(folder, gb=85.5)
    assert findings["model"].verdict is Verdict.OK
    assert findings["model"].detail.startswith("split: prefills pause between its layers")
    assert findings["weights"].detail == ("61.0 GB on each GPU, of 86; --mem-fraction-static will be 0.832")
    fused = of_model(folder, "--quantization", "gptq_marlin")["model"]
    assert fused.verdict is Verdict.INFO
    assert fused.detail.startswith("fused steps: prefill and decode would share Marlin's locks")
    assert "no GPU is here" in of_model(folder, gb=None)["weights"].detail


def test_it_fails_when_a_model_does_not_fit_or_is_none(tmp_path: Path) -> None:
    folder = str(write_model_folder("qwen3-30b-a3b", tmp_path))
    small = of_model(folder, gb=40)["weights"]
    assert small.verdict is Verdict.FAIL
    assert "weights take 61 GB on each GPU, which has 40 GB" in small.detail
    assert of_model(folder, gb=40, **{"engine.sglang.tp_size": 3})["model"].verdict is Verdict.FAIL
    nothing = of_model(str(tmp_path / "nothing"))["model"]
    assert (nothing.verdict, "there is no model folder" in nothing.detail) == (Verdict.FAIL, True)
    assert of_model("meta/llama")["model"].verdict is Verdict.INFO
    config = Path(folder) / "config.json"
    config.write_text('{"architectures": null}')
    assert of_model(folder)["class"].verdict is Verdict.WARN
    config.write_text("{")
    assert "no JSON object" in of_model(folder)["model"].detail


def test_it_fails_when_an_adapter_does_not_fit(tmp_path: Path) -> None:
    folder = str(write_model_folder("qwen3-30b-a3b", tmp_path))
    found = of_model(folder, "--lora-paths", "chat=/nowhere")["adapters"]
    assert (found.verdict, "chat's adapter /nowhere is no folder" in found.detail) == (Verdict.FAIL, True)


@pytest.mark.parametrize(
    ("version", "hint"),
    [("0.6.0", REQUIREMENT), ("0.5.21", REQUIREMENT), (f"{TESTED[-1]}.post1", TESTED[-1])],
)
def test_a_warning_names_what_to_install_when_sglang_was_not_tested(version: str, hint: str) -> None:
    finding = found(installed_version=lambda name: version if name == "sglang" else None)["sglang"]
    assert finding.verdict is Verdict.WARN
    assert hint in finding.hint


@pytest.mark.parametrize("version", TESTED)
def test_a_tested_sglang_is_fine(version: str) -> None:
    finding = found(installed_version=lambda name: version if name == "sglang" else None)["sglang"]
    assert finding.verdict is Verdict.OK


def test_an_unsupported_python_fails_when_it_runs_the_daemon() -> None:
    assert found(python=lambda: (3, 10, 9))["python"].verdict is Verdict.FAIL
    assert found(python=lambda: (3, 14, 0))["python"].verdict is Verdict.FAIL
    assert found(python=lambda: (3, 13, 0))["python"].verdict is Verdict.OK


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (errno.EADDRINUSE, "another program uses 127.0.0.1 port 8080"),
        (errno.EACCES, "may not listen"),
        (errno.EADDRNOTAVAIL, "is no address of this machine"),
        (errno.EAFNOSUPPORT, "cannot listen on"),
    ],
)
def test_a_port_fails_with_a_hint_when_it_cannot_be_used(error: int, says: str) -> None:
    finding = found(bind=lambda host, port: error if port == 8080 else None)["data port"]
    assert finding.verdict is Verdict.FAIL
    assert says in finding.detail
    assert "data." in finding.hint


def test_ports_are_fine_when_a_running_pdmuxd_uses_them() -> None:
    findings = found(bind=lambda host, port: errno.EADDRINUSE, is_pdmuxd=lambda host, port: port == 8081)
    assert findings["admin port"].verdict is Verdict.OK
    assert "running pdmuxd" in findings["admin port"].detail
    assert findings["data port"].verdict is Verdict.OK


def test_the_ports_of_the_running_daemon_are_told_when_they_are_not_those_of_the_settings() -> None:
    running = Holder(pid="41", admin_url="http://127.0.0.1:9001", data_url="http://127.0.0.1:8080")
    taken = {"bind": lambda host, port: errno.EADDRINUSE, "holder_of": lambda path: running}
    findings = found(**taken, is_pdmuxd=lambda host, port: port == 9001)
    assert {findings[check].verdict for check in ("admin port", "data port")} == {Verdict.OK}
    assert findings["admin port"].detail == (
        "the running pdmuxd (process 41) listens at http://127.0.0.1:9001; the settings say port 8081"
    )
    assert findings["data port"].detail.endswith("listens at http://127.0.0.1:8080")
    silent = found(**taken, is_pdmuxd=lambda host, port: False)
    assert silent["admin port"].verdict is Verdict.FAIL


def test_ports_fail_when_what_uses_them_is_not_pdmuxd() -> None:
    findings = found(bind=lambda host, port: errno.EADDRINUSE)
    assert findings["admin port"].verdict is Verdict.FAIL
    assert findings["data port"].verdict is Verdict.FAIL


@pytest.mark.parametrize(
    ("free_bytes", "verdict"),
    [(50 << 20, Verdict.FAIL), (500 << 20, Verdict.WARN), (2 * GIB, Verdict.OK)],
)
def test_the_disk_is_judged_by_its_free_space_when_state_is_kept_there(
    free_bytes: int, verdict: Verdict
) -> None:
    look_at = lambda path: Directory(path=path, writable=True, free_bytes=free_bytes)  # noqa: E731
    assert found(look_at=look_at)["disk"].verdict is verdict


def test_the_state_directory_fails_when_it_is_not_writable() -> None:
    look_at = lambda path: Directory(path=Path("/"), writable=False, free_bytes=GIB)  # noqa: E731
    findings = found(look_at=look_at)
    assert findings["state directory"].verdict is Verdict.FAIL
    assert "state_dir (now /s)" in findings["state directory"].hint
    assert findings["sockets"].verdict is Verdict.FAIL


def test_the_place_of_sockets_is_told_when_the_state_directory_is_long() -> None:
    finding = found(loaded(state_dir="/" + "x" * 100))["sockets"]
    assert finding.verdict is Verdict.INFO
    assert "/tmp/pdmuxd-" in finding.detail


def test_the_database_fails_without_its_password_when_it_does_not_answer() -> None:
    def refuse(url: str) -> str:
        raise StoreError("cannot reach postgresql://me:hunter2@host/db")

    finding = found(database_revision=refuse)["database"]
    assert finding.verdict is Verdict.FAIL
    assert "hunter2" not in finding.detail


def test_a_hint_says_how_to_make_the_database_when_there_is_none() -> None:
    finding = found(database_revision=lambda url: None)["database"]
    assert (finding.verdict, finding.hint) == (Verdict.INFO, "create it with: pdmuxd db upgrade")


def test_a_hint_says_how_to_measure_when_no_profile_is_active() -> None:
    finding = found(active_profile=lambda url: None)["profile"]
    assert finding.verdict is Verdict.INFO
    assert "pdmuxd profile run" in finding.hint
    assert "profile" not in found(database_revision=lambda url: None)


@pytest.mark.parametrize(
    ("cores", "verdict", "text"),
    [
        (None, Verdict.OK, "none"),
        (16.0, Verdict.INFO, "16 processors"),
        (2.5, Verdict.WARN, "2.5 processors"),
    ],
)
def test_a_quota_of_processors_is_told_and_a_small_one_is_a_warning(
    cores: float | None, verdict: Verdict, text: str
) -> None:
    finding = found(quota_cores=lambda: cores)["cpu quota"]
    assert (finding.verdict, finding.detail.partition(":")[0]) == (verdict, text)
    assert ("CPUQuota" in finding.hint) == (cores is not None)


def test_a_warning_names_the_needed_limit_when_too_few_files_may_be_open() -> None:
    finding = found(open_files_limit=lambda: 1024)["open files"]
    assert finding.verdict is Verdict.WARN
    assert "ulimit -n 2112" in finding.hint
    assert found(open_files_limit=lambda: None)["open files"].verdict is Verdict.OK
    fewer = loaded(**{"data.max_in_flight": 100})
    assert found(fewer, open_files_limit=lambda: 1024)["open files"].verdict is Verdict.OK


def test_systemd_is_missed_but_not_required_when_it_does_not_run() -> None:
    assert found(systemd_running=lambda: False)["systemd"].verdict is Verdict.INFO
    listening = found(systemd_running=lambda: False, notify_socket=lambda: "/run/notify")
    assert listening["systemd"].verdict is Verdict.OK


def after(wall_s: float, monotonic_s: float) -> Iterator[ClockReading]:
    yield NOW
    yield ClockReading(wall_s=NOW.wall_s + wall_s, monotonic_s=NOW.monotonic_s + monotonic_s)


@pytest.mark.parametrize(
    ("wall_s", "monotonic_s", "verdict", "says"),
    [
        (2.0, 2.0, Verdict.OK, "2026-"),
        (0.0, 2.0, Verdict.WARN, "set by -2.0 s"),
        (3602.0, 2.0, Verdict.WARN, "set by +3600.0 s"),
        (1.0, -1.0, Verdict.FAIL, "went back"),
        (-1_500_000_000.0, 1.0, Verdict.WARN, "the year is 1979"),
    ],
)
def test_the_clock_is_judged_by_both_readings_when_checks_have_run(
    wall_s: float, monotonic_s: float, verdict: Verdict, says: str
) -> None:
    readings = after(wall_s, monotonic_s)
    finding = found(clocks=lambda: next(readings))["clock"]
    assert finding.verdict is verdict
    assert says in finding.detail


@pytest.mark.parametrize(
    ("synchronised", "verdict"), [(True, Verdict.OK), (False, Verdict.WARN), (None, Verdict.INFO)]
)
def test_the_synchronisation_of_the_clock_is_told_when_the_kernel_knows_it(
    synchronised: bool | None, verdict: Verdict
) -> None:
    assert found(clock_synchronised=lambda: synchronised)["clock sync"].verdict is verdict


def test_wrong_settings_are_a_finding_and_the_rest_is_checked_when_the_file_is_broken() -> None:
    findings = found(DeferredSettings(lambda: loaded(**{"data.port": "x"})))
    assert findings["settings"].verdict is Verdict.FAIL
    assert 'data.port is "x"' in findings["settings"].detail
    assert "clock" in findings
    assert "data port" not in findings


def test_the_worst_verdict_counts_when_findings_differ() -> None:
    order = [Verdict.OK, Verdict.INFO, Verdict.WARN, Verdict.FAIL]
    for index, verdict in enumerate(order):
        assert worst(Finding("x", each, "") for each in order[: index + 1]) is verdict
    assert worst([]) is Verdict.OK


# The probes themselves, against this machine.


def test_a_port_is_reported_in_use_when_something_listens_on_it() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        assert real.try_bind("127.0.0.1", listener.getsockname()[1]) == errno.EADDRINUSE
    assert real.try_bind("127.0.0.1", 0) is None
    assert real.try_bind("192.0.2.1", 0) == errno.EADDRNOTAVAIL
    assert real.try_bind("no-such-host.invalid", 0) == errno.EADDRNOTAVAIL


@pytest.mark.parametrize(("metrics", "expected"), [("pdmuxd_build_info 1", True), ("other 1", False)])
def test_a_pdmuxd_is_known_by_its_metrics_when_it_is_healthy(
    metrics: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real, "_HEALTH_TIMEOUT_S", 60.0)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(metrics.encode())

        def log_message(self, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            assert real.is_pdmuxd("0.0.0.0", server.server_port) is expected
        finally:
            server.shutdown()
            thread.join()


def test_no_pdmuxd_is_known_when_nothing_answers() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        assert not real.is_pdmuxd("127.0.0.1", unused.getsockname()[1])


def test_the_nearest_directory_is_looked_at_when_the_wanted_one_does_not_exist(tmp_path: Path) -> None:
    found = real.look_at(tmp_path / "a" / "b")
    assert (found.path, found.writable) == (tmp_path, True)
    assert found.free_bytes > 0


def test_a_file_is_not_writable_as_a_directory_when_it_stands_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert not real.look_at(tmp_path / "file").writable


def test_the_database_is_absent_until_it_is_made_when_it_is_asked_for(tmp_path: Path) -> None:
    from pdmuxd.controlplane.database.opening import upgrade

    url = f"sqlite:///{tmp_path / 'pdmuxd.db'}"
    assert real.database_revision(url) is None
    assert not list(tmp_path.iterdir())
    revision = upgrade(url)
    assert real.database_revision(url) == revision


def test_the_active_profile_is_named_when_there_is_one(tmp_path: Path) -> None:
    url = new_database(tmp_path)
    assert real.active_profile(url) is None
    with opened(url) as control_plane:
        stored = control_plane.profiles.add(measured_profile("mine"), origin="measured")
        control_plane.profiles.activate(stored.profile_id, None)
    assert real.active_profile(url) == "mine, version 1, of NVIDIA H200"


def test_a_url_that_cannot_be_read_is_an_error_when_its_revision_is_asked_for() -> None:
    with pytest.raises(StoreError):
        real.database_revision("nonsense://")


@pytest.mark.parametrize(
    "line",
    [
        "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (builder@)",
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.04  Tue Mar  4 10:00:00 UTC 2025",
    ],
)
def test_the_drivers_version_is_found_when_the_kernel_module_is_open_or_not(
    tmp_path: Path, line: str
) -> None:
    (tmp_path / "version").write_text(f"{line}\nGCC version:  gcc version 13.2.0 (GCC)\n")
    assert real.driver_version(tmp_path / "version") == "580.159.04"
    assert real.driver_version(tmp_path / "none") is None


def test_this_machine_can_be_asked_when_no_probe_is_replaced() -> None:
    assert real.installed_version("no-such-distribution-here") is None
    assert real.installed_version("pytest")
    assert is_synchronised() in (True, False, None)
    limit = real.open_files_limit()
    assert limit is None or limit > 0


@pytest.fixture
def _outside(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


@pytest.mark.usefixtures("_outside")
def test_the_exit_code_is_0_when_nothing_fails(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--set", "state_dir=state", "--set", "data.port=0", "--set", "admin.port=0", "doctor"]
    assert main(words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.split()[0] in [*Verdict, "->"] for line in lines)

    assert main([*words, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] in ("ok", "info", "warn")
    assert {"check", "verdict", "detail", "hint"} == set(report["findings"][0])


@pytest.mark.usefixtures("_outside")
def test_the_exit_code_is_1_when_something_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--set", "data.port=-1", "doctor", "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert report["verdict"] == "fail"
