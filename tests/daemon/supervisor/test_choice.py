"""Which engine `engine.kind` stands for."""

import sys
from pathlib import Path

import pytest

from pdmuxd.daemon.doctor.gpu import CudaDriver, Gpu
from pdmuxd.daemon.settings.engine import EngineSection, SglangSection
from pdmuxd.daemon.supervisor import choice
from pdmuxd.engine.core.errors import SettingsError

H200 = CudaDriver(cuda=(13, 0), has_green_contexts=True, gpus=(Gpu(name="H200", sms=132, capability=(9, 0)),))


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "my-model"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    return folder


def settings(model=None, *, kind="auto", policy="auto", **sglang):
    section = SglangSection(model=str(model) if model else None, python=Path(sys.executable), **sglang)
    return EngineSection(kind=kind, policy=policy, sglang=section)


@pytest.mark.parametrize("driver", [None, CudaDriver(cuda=(13, 0), has_green_contexts=True)])
def test_the_engine_is_emulated_when_there_is_no_gpu(monkeypatch, driver):
    monkeypatch.setattr(choice, "ask_driver", lambda: driver)
    found = choice.choose_engine(settings())
    assert "pdmuxd.engine.emulator.server" in found.command(1, "l", 2)
    assert found.why == "there is no GPU here, so the engine is emulated"
    assert found.start_timeout_s == 60


def test_the_start_is_refused_when_a_model_is_set_and_there_is_no_gpu(monkeypatch, model):
    monkeypatch.setattr(choice, "ask_driver", lambda: None)
    with pytest.raises(SettingsError, match=r"^engine\.sglang\.model is .*no GPU is found"):
        choice.choose_engine(settings(model))


def test_the_model_is_missed_aloud_when_there_is_a_gpu(monkeypatch):
    monkeypatch.setattr(choice, "ask_driver", lambda: H200)
    assert "engine.sglang.model is unset" in choice.choose_engine(settings()).why


def test_sglang_serves_when_there_is_a_gpu_and_a_model(monkeypatch, model):
    monkeypatch.setattr(choice, "ask_driver", lambda: H200)
    found = choice.choose_engine(
        settings(model, tp_size=2, partitions="96,36", extra_args="--mem-fraction-static '0.8'")
    )
    words = list(found.command(8000, "ipc:///x", 42))
    assert words[:4] == [sys.executable, "-P", "-m", "pdmuxd.engine.sglang"]
    assert words[words.index("--model") + 1] == str(model)
    assert words[words.index("--parent-pid") + 1] == "42"
    assert words[words.index("--tp-size") + 1] == "2"
    assert words[words.index("--partitions") + 1] == "96,36"
    assert words[-3:] == ["--", "--mem-fraction-static", "0.8"]
    assert (found.model, found.start_timeout_s) == ("my-model", 1200)


def test_no_gpu_is_asked_for_when_the_kind_is_said(monkeypatch, model):
    monkeypatch.setattr(choice, "ask_driver", lambda: pytest.fail("asked"))
    assert choice.choose_engine(settings(model, kind="sglang")).model == "my-model"
    assert choice.choose_engine(settings(kind="emulator")).why is None


def test_the_start_is_refused_when_the_model_is_not_there(model):
    with pytest.raises(SettingsError, match=r"engine\.sglang\.model: there is no model folder /none"):
        choice.choose_engine(settings("/none", kind="sglang"))
    (model / "config.json").unlink()
    with pytest.raises(SettingsError, match=r"has no config\.json"):
        choice.choose_engine(settings(model, kind="sglang"))


def test_the_start_is_refused_when_an_adapter_is_no_folder(model):
    with pytest.raises(
        SettingsError, match=r"^engine\.sglang\.extra_args: .*chat's adapter /none is no folder"
    ):
        choice.choose_engine(settings(model, kind="sglang", extra_args="--lora-paths chat=/none"))


def test_the_start_is_refused_when_no_python_has_sglang(model, monkeypatch, tmp_path):
    missing = EngineSection(
        kind="sglang", sglang=SglangSection(model=str(model), python=Path("/none/python"))
    )
    with pytest.raises(SettingsError, match=r"engine\.sglang\.python is /none/python"):
        choice.choose_engine(missing)
    monkeypatch.setattr(choice, "find_spec", lambda name: None)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / ".venv"))
    unset = EngineSection(kind="sglang", sglang=SglangSection(model=str(model)))
    with pytest.raises(SettingsError, match="pdmuxd install-sglang"):
        choice.choose_engine(unset, tmp_path / "state")
    colocated_step = tmp_path / ".venv-sglang" / "bin" / "python"
    colocated_step.parent.mkdir(parents=True)
    colocated_step.touch()
    assert choice.choose_engine(unset, tmp_path / "state").command(1, "l", 2)[0] == str(colocated_step)
    installed = tmp_path / "state" / "sglang" / "bin" / "python"
    installed.parent.mkdir(parents=True)
    installed.touch()
    assert choice.choose_engine(unset, tmp_path / "state").command(1, "l", 2)[0] == str(installed)


def test_what_sglang_does_not_do_of_the_policy_is_said_when_it_is_chosen(model):
    why = choice.choose_engine(settings(model, kind="sglang", policy="pla/muxwise")).why
    assert why.startswith("policy pla/muxwise: SGLang captures no prefills")
    for policy in ("auto", "pla+nograph/muxwise"):
        assert choice.choose_engine(settings(model, kind="sglang", policy=policy)).why is None
    assert choice.choose_engine(settings(kind="emulator", policy="pla/muxwise")).why is None


def test_the_start_says_how_the_model_will_be_served(monkeypatch, model):
    monkeypatch.setattr(choice, "ask_driver", lambda: H200)
    assert choice.choose_engine(settings(model)).mode.startswith("split: ")
    found = choice.choose_engine(settings(model, extra_args="--enable-torch-compile"))
    assert found.mode == "fused steps: --enable-torch-compile: a compiled layer cannot pause"
    (model / "config.json").write_text('{"architectures": ["WhisperForConditionalGeneration"]}')
    assert "encoder" in choice.choose_engine(settings(model)).mode
    assert choice.choose_engine(settings()).mode is None
