"""Command lines: what is refused, and where profiles come from."""

import argparse
import gzip
import json
from pathlib import Path

import msgspec
import pytest

from gpu_plans import matrix
from gpu_servers import options
from gpu_servers.model_folder import SHAPES, WITHOUT_PROFILE
from gpu_servers.shapes import shape_model
from pdmuxd.daemon.bench.arms import Arm
from pdmuxd.daemon.bench.servers.predicting import predictors
from pdmuxd.engine.emulator.profile import available_profiles, load_profile

ROOT = Path(__file__).parents[3]


def test_the_repositorys_own_profile_serves_when_none_is_given(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = ["--results", str(tmp_path / "r"), "--log-dir", str(tmp_path)]
    found = predictors(matrix.options_of(words).predictors, "llama-8b")
    assert any(solo.decode is not None for solo in found.solo_run)


def test_predictors_are_read_when_measure_wrote_them(tmp_path):
    kept = ROOT / options.PROFILES / "llama-8b.profile.json.gz"
    profile = json.loads(gzip.decompress(kept.read_bytes()))
    made = predictors({"llama-8b": kept}, "llama-8b")
    (tmp_path / "p.json").write_bytes(msgspec.json.encode(made))
    assert predictors({"llama-8b": tmp_path / "p.json"}, "llama-8b") == made
    assert len(made.solo_run) == len(profile["solo_run"])


def test_a_model_without_a_profile_has_no_predictors():
    assert predictors({}, "codellama-34b") is None


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (options.numbers, "20,0"),
        (options.numbers, "20,inf"),
        (options.numbers, "x"),
        (options.whole_numbers, "1,-2"),
        (options.whole_numbers, "1.5"),
        (options.predictor_file, "llama-8b"),
        (options.predictor_file, "unknown=file"),
        (options.predictor_file, "llama-8b=/none"),
    ],
)
def test_what_cannot_be_meant_is_refused(read, text):
    with pytest.raises(argparse.ArgumentTypeError):
        read(text)


def test_lists_are_read():
    assert options.numbers("20,50.5") == [20.0, 50.5]
    assert options.whole_numbers("1,2") == [1, 2]


@pytest.mark.parametrize("model", sorted(SHAPES.keys() - WITHOUT_PROFILE))
def test_the_emulated_engine_has_a_profile_of_each_model(model, tmp_path):
    given = {"port": 1, "link": "ipc://l", "tp_size": 1, "cpu": False, "extra": ()}
    words = Arm(name="emulator:auto").command(model=shape_model(model, tmp_path, {}), **given)
    name = words[words.index("--profile") + 1]
    assert name in available_profiles()
    assert load_profile(name).model.name == {"tiny": "llama-8b"}.get(model, model)
