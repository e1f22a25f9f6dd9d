"""How much of the GPU's memory weights and KV get."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpu_servers.model_folder import write_model_folder
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.sglang.launch.memory import (
    MIB,
    Weights,
    choose_fraction,
    reserve_bytes,
    stock_sizes,
    weights_of,
)

H100 = int(81559 * MIB)
"""As nvidia-smi says of an H100 of 80 GB."""
H200 = int(143771 * MIB)


def choose(gb: float, *extra: str, memory: int = H100, tp_size: int = 1, **more: object) -> float | None:
    weights = Weights(bytes_per_gpu=gb * 1e9, **more)  # type: ignore[arg-type]
    return choose_fraction(weights, memory, extra, tp_size=tp_size)


def test_the_reserve_is_what_sglang_said_where_a_large_model_did_not_start() -> None:
    chunk, rows = stock_sizes(H100, 1)
    assert (chunk, rows) == (8192, 256)
    kept = reserve_bytes(H100, 16384, rows, tp_size=1, is_latent=False)
    assert round(1 - kept / H100, 3) == 0.681


@pytest.mark.parametrize("gb", [1, 16.1, 29.5])
def test_a_small_model_keeps_what_sglang_chooses(gb: float) -> None:
    assert choose(gb) is None


def test_a_model_of_61_gb_gets_what_a_stock_server_gives_it() -> None:
    # Its weights alone took 0.727 of an H100; 0.85 left so little that an allocation failed.
    assert choose(61.1) == pytest.approx(0.832, abs=0.003)
    assert 0.727 < choose(58.0) < 0.85  # type: ignore[operator]


def test_a_model_in_between_shares_what_its_weights_leave() -> None:
    found = choose(45)
    assert found is not None
    assert (1 - found) * H100 == pytest.approx((H100 - 45e9) / 2, rel=0.01)


def test_more_weights_never_get_less_memory() -> None:
    found = [choose(gb) or 0.681 for gb in range(1, 71)]
    assert found == sorted(found)
    assert all(share * H100 > gb * 1e9 for gb, share in enumerate(found, 1) if gb >= 35)


@pytest.mark.parametrize("gb", [72, 140])
def test_weights_that_do_not_fit_are_refused_in_one_sentence(gb: float) -> None:
    with pytest.raises(SettingsError) as error:
        choose(gb)
    said = str(error.value)
    assert f"weights take {gb} GB on each GPU, which has 86 GB" in said
    assert "engine.sglang.tp_size" in said
    assert "--mem-fraction-static" in said


def test_an_h200_holds_what_an_h100_does_not() -> None:
    assert choose(61.1, memory=H200) is None
    assert choose(110, memory=H200) is not None


def test_the_users_own_fraction_stands() -> None:
    assert choose(61.1, "--mem-fraction-static", "0.85") is None
    assert choose(61.1, "--mem-fraction-static=0.9") is None
    assert choose(61.1, "--mem-fraction-static", "much") is None, "SGLang says what is wrong with it"
    with pytest.raises(SettingsError, match=r"weights take 61 GB .* --mem-fraction-static 0\.6 lets .* 60%"):
        choose(61.1, "--mem-fraction-static", "0.6")


def test_a_model_with_images_leaves_memory_for_its_encoder() -> None:
    plain, with_images = choose(55), choose(55, encoder=(24, 1024))
    assert plain is not None
    assert with_images == pytest.approx(0.95 * plain, abs=0.001)


def test_nothing_is_chosen_when_weights_or_memory_are_unknown() -> None:
    assert choose_fraction(None, H100, (), tp_size=1) is None
    assert choose_fraction(Weights(bytes_per_gpu=1e12), None, (), tp_size=1) is None


def test_weights_are_known_from_the_configuration_alone(tmp_path: Path) -> None:
    folder = write_model_folder("qwen3-30b-a3b", tmp_path)
    whole = weights_of(str(folder), (), tp_size=1)
    assert whole is not None
    assert whole.bytes_per_gpu == pytest.approx(61.1e9, rel=0.02)
    half = weights_of(str(folder), (), tp_size=2)
    assert half is not None
    assert half.bytes_per_gpu == whole.bytes_per_gpu / 2
    small = weights_of(str(folder), ("--quantization", "fp8"), tp_size=1)
    assert small is not None
    assert small.bytes_per_gpu == pytest.approx(30.7e9, rel=0.03)
    assert weights_of(str(folder), ("--cpu-offload-gb", "20"), tp_size=1) is None


def test_weights_are_what_the_files_say(tmp_path: Path) -> None:
    folder = write_model_folder("llama-8b", tmp_path)
    (folder / "model-00001.safetensors").write_bytes(b"x" * 700)
    (folder / "consolidated.safetensors").write_bytes(b"x" * 900)
    found = weights_of(str(folder), (), tp_size=1)
    assert found is not None
    assert found.bytes_per_gpu == 700
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 16060522496}})
    )
    found = weights_of(str(folder), (), tp_size=1)
    assert found is not None
    assert found.bytes_per_gpu == 16060522496


@pytest.mark.parametrize("index", ["{", "[]", '{"metadata": null}'])
def test_a_broken_index_does_not_stop_a_start(tmp_path: Path, index: str) -> None:
    folder = write_model_folder("llama-8b", tmp_path)
    (folder / "model.safetensors.index.json").write_text(index)
    found = weights_of(str(folder), (), tp_size=1)
    assert found is not None
    assert found.bytes_per_gpu == pytest.approx(16.06e9, rel=0.01)


def test_nothing_is_known_of_a_hubs_model() -> None:
    assert weights_of("meta/llama", (), tp_size=1) is None
