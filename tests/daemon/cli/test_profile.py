"""`pdmuxd profile`."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from msgspec import structs
from profiling import measured_profile

from pdmuxd.controlplane.services.control_plane import ControlPlane
from pdmuxd.engine.core.shapes import TensorParallel
from pdmuxd.engine.emulator.profile import load_profile
from pdmuxd.engine.profiling.corrections import Change

if TYPE_CHECKING:
    from conftest import Pdmuxd

MEASURED = Path(__file__).parents[3] / "docs" / "measurements" / "h200" / "qwen3-8b.profile.json.gz"


@pytest.fixture
def profile_id(control_plane: ControlPlane) -> int:
    return control_plane.profiles.add(measured_profile(), origin="measured").profile_id


def test_profiles_are_listed_and_shown_when_there_are_some(pdmuxd: Pdmuxd, profile_id: int) -> None:
    assert "NVIDIA" in pdmuxd("profile", "list").out
    shown = pdmuxd("profile", "show", str(profile_id)).out
    assert "300 pairs" in shown
    assert "prefill    132" in shown
    assert pdmuxd("profile", "list", "--json").json[0]["worst_p90_error_ratio"] == 0.02


def test_it_is_shown_of_how_many_gpus_a_profile_is_when_there_are_several(
    pdmuxd: Pdmuxd, control_plane: ControlPlane, tmp_path: Path
) -> None:
    several = structs.replace(measured_profile(), tensor_parallel=TensorParallel(gpus=2))
    profile_id = control_plane.profiles.add(several, origin="measured").profile_id
    assert pdmuxd("profile", "list", "--json").json[0]["gpus"] == 2
    assert "GPUs" in pdmuxd("profile", "list").out
    assert "m on 2 x NVIDIA H200" in " ".join(pdmuxd("profile", "show", str(profile_id)).out.split())
    pdmuxd("profile", "report", str(profile_id), str(tmp_path / "p.html"))
    assert "m on 2 x NVIDIA H200: measured against predicted" in (tmp_path / "p.html").read_text()


def test_it_is_said_how_to_make_one_when_there_is_no_profile(
    pdmuxd: Pdmuxd, control_plane: ControlPlane
) -> None:
    assert "pdmuxd profile run" in pdmuxd("profile", "list").out
    assert "no profile is active" in pdmuxd("profile", "show").out


def test_the_profile_before_holds_when_activated_and_rolled_back(pdmuxd: Pdmuxd, profile_id: int) -> None:
    assert f"{profile_id} (p, version 1)" in pdmuxd("profile", "activate", str(profile_id)).out
    assert pdmuxd("profile", "show", "--json").json["profile"]["id"] == profile_id
    assert "none" in pdmuxd("profile", "rollback").out
    assert "none to go back to" in pdmuxd("profile", "rollback", code=2).err


@pytest.mark.slow
def test_the_emulator_runs_by_it_when_exported_for_it(
    pdmuxd: Pdmuxd, profile_id: int, tmp_path: Path
) -> None:
    file = tmp_path / "measured.json"
    pdmuxd("profile", "export", str(profile_id), str(file), "--format", "emulator")
    profile = load_profile(str(file))
    assert profile.provenance.startswith("measured: m on NVIDIA H200")
    assert profile.contention_ratio == 0.1
    assert profile.predictor.decode_s is not None
    assert "exists" in pdmuxd("profile", "export", str(profile_id), str(file), code=2).err.lower()


def test_a_profile_is_a_new_version_when_exported_and_imported(
    pdmuxd: Pdmuxd, profile_id: int, tmp_path: Path
) -> None:
    file = tmp_path / "p.json"
    pdmuxd("profile", "export", str(profile_id), str(file))
    assert pdmuxd("profile", "import", str(file), "--json").json["version"] == 2
    file.write_text("{}")
    refused = pdmuxd("profile", "import", str(file), code=2).err
    assert refused.count("\n") == 1
    assert "not a measured profile" in refused


def test_a_gzipped_profile_is_imported_as_it_is_and_refused_when_it_is_cut_off(
    pdmuxd: Pdmuxd, profile_id: int, tmp_path: Path
) -> None:
    plain, packed = tmp_path / "p.json", tmp_path / "p.json.gz"
    pdmuxd("profile", "export", str(profile_id), str(plain))
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert pdmuxd("profile", "import", str(packed), "--json").json["version"] == 2
    packed.write_bytes(packed.read_bytes()[:-20])
    refused = pdmuxd("profile", "import", str(packed), code=2).err
    assert refused.count("\n") == 1
    assert "p.json.gz: not a whole gzip file" in refused


def test_a_cell_is_reset_when_named(pdmuxd: Pdmuxd, profile_id: int, control_plane: ControlPlane) -> None:
    control_plane.profiles.activate(profile_id, None)
    change = Change(kind="raised", cell=(36, 2, 0, 5, 3), before=1.2, after=1.5, evidence="a slow step")
    control_plane.profiles.learn(profile_id, [change])
    assert "a slow step" in pdmuxd("profile", "changes", str(profile_id)).out
    pdmuxd("profile", "freeze", str(profile_id))
    pdmuxd("profile", "reset", str(profile_id), "--cell", "36-2-0-5-3")
    pdmuxd("profile", "thaw", str(profile_id))
    assert control_plane.profiles.learned(profile_id).cells == {}
    assert [one["kind"] for one in pdmuxd("profile", "changes", str(profile_id), "--json").json] == [
        "thawed",
        "reset",
        "frozen",
        "raised",
    ]


def test_one_page_holds_all_figures_when_reported(pdmuxd: Pdmuxd, profile_id: int, tmp_path: Path) -> None:
    file = tmp_path / "p.html"
    pdmuxd("profile", "report", str(profile_id), str(file))
    page = file.read_text()
    assert "default-src 'none'" in page
    for title in ("Latency against SM count", "The contention guard"):
        assert title in page


def test_both_sides_of_a_pair_are_drawn_when_a_measured_profile_is_reported(
    pdmuxd: Pdmuxd, control_plane: ControlPlane, tmp_path: Path
) -> None:
    pdmuxd("profile", "import", str(MEASURED))
    pdmuxd("profile", "report", "1", str(tmp_path / "p.html"))
    page = (tmp_path / "p.html").read_text()
    assert "Slowdown of decode beside prefill" in page
    assert "Slowdown of prefill beside decode" in page


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("run", "--budget", "soon"), "--budget is 'soon'; allowed are 10s to 24h"),
        (("run", "--budget", "1s"), "--budget is '1s'; allowed are 10s to 24h"),
        (("run", "--budget", "nan"), "--budget is 'nan'; allowed are 10s to 24h"),
        (("show", "9"), "there is no profile 9"),
        (("export", "1", "x", "--format", "xml"), "allowed are profile, emulator"),
        (("import", "nowhere.json"), "nowhere.json: cannot be read"),
    ],
)
def test_one_line_says_what_is_wrong_when_asked_wrongly(
    pdmuxd: Pdmuxd, control_plane: ControlPlane, words: tuple[str, ...], error: str
) -> None:
    refused = pdmuxd("profile", *words, code=2)
    assert error in refused.err
    assert "Traceback" not in refused.err


def test_nothing_is_measured_when_there_is_no_database(pdmuxd: Pdmuxd) -> None:
    assert "pdmuxd db upgrade" in pdmuxd("profile", "run", "--budget", "10s", code=2).err


@pytest.mark.slow
def test_the_file_holds_the_profile_when_measured_for_one(pdmuxd: Pdmuxd, tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    found = pdmuxd("profile", "run", "--budget", "10s", "--output", str(file), "--name", "mine")
    assert "samples were measured in" in found.out
    assert json.loads(file.read_text())["name"] == "mine"


def test_the_emulated_gpu_is_not_measured_by_accident_where_there_is_one(
    pdmuxd: Pdmuxd, control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pdmuxd.daemon.profiling.command.has_gpu", lambda: True)
    asked = pdmuxd("profile", "run", "--engine", "auto", "--budget", "10s", code=2)
    assert "engine.sglang.model is unset" in asked.err
    assert "--model PATH" in asked.err
    assert "/not/there" in pdmuxd("profile", "run", "--model", "/not/there", "--budget", "10s", code=2).err
