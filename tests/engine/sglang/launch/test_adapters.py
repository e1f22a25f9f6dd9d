"""Whether an adapter fits the model, by its files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from adapters import write_adapter

from gpu_servers.model_folder import write_model_folder
from pdmuxd.controlplane.tenants.tenant_fields import NAME
from pdmuxd.engine.core.errors import SettingsError
from pdmuxd.engine.core.slo import TENANT_NAME
from pdmuxd.engine.sglang.launch.adapters import check_adapters


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model_folder("tiny", tmp_path / "model")


@pytest.fixture
def adapter(model: Path, tmp_path: Path) -> Path:
    return write_adapter(tmp_path / "chat", model, seed=1)


def check(model: Path | str, adapter: Path | str, *flags: str) -> None:
    check_adapters(str(model), ("--lora-paths", f"chat={adapter}", *flags))


def said(adapter: Path, **changes: Any) -> None:
    """Change what an adapter says of itself; None takes a field away."""
    file = adapter / "adapter_config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({name: value for name, value in config.items() if value is not None}))


def test_an_adapter_of_the_model_passes(model: Path, adapter: Path) -> None:
    check(model, adapter, "--max-lora-rank", "8")
    said(adapter, target_modules="all-linear")
    check(model, adapter)
    check(model, "org/adapter")  # on a hub, which the engine asks
    check("org/model", adapter)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hidden_size": 512}, r"is of another model: .*\.down_proj\.lora_B\.weight has width 512, not 256|"
         r"is of another model: .*\.q_proj\.lora_A\.weight has width 512, not 256"),
        ({"num_key_value_heads": 4}, r"is of another model: .*\.k_proj\.lora_B\.weight has width"),
        ({"intermediate_size": 64}, r"is of another model: .*_proj\.lora_.\.weight has width 64, not"),
        ({"num_hidden_layers": 5}, "has weights for layer 4; the model has 4"),
    ],
)  # fmt: skip
def test_an_adapter_is_refused_when_it_was_made_for_another_model(
    model: Path, tmp_path: Path, change: dict[str, int], why: str
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    config = json.loads((model / "config.json").read_text())
    (other / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(SettingsError, match=why):
        check(model, write_adapter(tmp_path / "chat", other, seed=1))


def test_only_the_hidden_size_is_compared_when_layers_may_differ(model: Path, adapter: Path) -> None:
    file = model / "config.json"
    config = json.loads(file.read_text()) | {"model_type": "nemotron-nas", "num_key_value_heads": None}
    file.write_text(json.dumps(config))
    check(model, adapter)
    file.write_text(json.dumps(config | {"hidden_size": 64}))
    with pytest.raises(SettingsError, match="is of another model"):
        check(model, adapter)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"r": 16}, r"says rank 16, and .* has 8"),
        ({"r": None}, "has no rank: r of its adapter_config.json is None"),
        ({"r": "8"}, "has no rank"),
        ({"use_dora": True}, "is a DoRA"),
        ({"target_modules": None}, "has no list of target_modules"),
        ({"target_modules": ".*_proj"}, "has no list of target_modules"),
        ({"target_modules": ["q_proj"]}, r"has weights for .*_proj, which its target_modules do not name"),
    ],
)
def test_an_adapter_is_refused_when_what_it_says_of_itself_is_not_served(
    model: Path, adapter: Path, change: dict[str, Any], why: str
) -> None:
    said(adapter, **change)
    with pytest.raises(SettingsError, match=rf"^SGLang's flag --lora-paths: chat's adapter /.* {why}"):
        check(model, adapter)


def keep(adapter: Path, *targets: str) -> None:
    """Leave an adapter the weights of these products alone."""
    file = adapter / "adapter_model.safetensors"
    blob = file.read_bytes()
    length = int.from_bytes(blob[:8], "little")
    header = {
        name: told
        for name, told in json.loads(blob[8 : 8 + length]).items()
        if any(f".{target}." in name for target in targets)
    }
    text = json.dumps(header).encode()
    file.write_bytes(len(text).to_bytes(8, "little") + text + blob[8 + length :])
    said(adapter, target_modules=list(targets))


@pytest.mark.parametrize(
    "targets", [("q_proj", "v_proj"), ("o_proj",), ("gate_proj",), ("q_proj", "k_proj", "v_proj")]
)
def test_an_adapter_of_some_products_passes(model: Path, adapter: Path, targets: tuple[str, ...]) -> None:
    keep(adapter, *targets)
    check(model, adapter)


@pytest.mark.parametrize(
    ("targets", "why"),
    [
        (("q_proj", "k_proj"), "has k_proj and q_proj without v_proj in layer 0's self_attn"),
        (("q_proj", "o_proj"), "has q_proj without v_proj"),
        (("k_proj",), "has k_proj without q_proj and v_proj"),
        (("k_proj", "v_proj"), "has k_proj and v_proj without q_proj"),
    ],
)
def test_an_adapter_is_refused_when_one_product_of_attention_is_missing(
    model: Path, adapter: Path, targets: tuple[str, ...], why: str
) -> None:
    keep(adapter, *targets)
    with pytest.raises(SettingsError, match=rf"chat's adapter /.* {why}"):
        check(model, adapter)


def _nothing(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").unlink()


def _cut(adapter: Path) -> None:
    file = adapter / "adapter_model.safetensors"
    file.write_bytes(file.read_bytes()[:100])


def _empty(adapter: Path) -> None:
    (adapter / "adapter_model.safetensors").write_bytes((2).to_bytes(8, "little") + b"{}")


def _broken(adapter: Path) -> None:
    (adapter / "adapter_config.json").write_text("{")


def _more_tokens(adapter: Path) -> None:
    (adapter / "added_tokens.json").write_text('{"<new>": 1000000}')


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (_nothing, "has no weights"),
        (_cut, "has weights that cannot be read: adapter_model.safetensors"),
        (_empty, "has no weights for the model's layers"),
        (_broken, "has no adapter_config.json that can be read"),
        (_more_tokens, "adds tokens to the model's"),
    ],
)
def test_an_adapter_is_refused_when_its_files_are_not_whole(
    model: Path, adapter: Path, spoil: Callable[[Path], None], why: str
) -> None:
    spoil(adapter)
    with pytest.raises(SettingsError, match=why):
        check(model, adapter)


@pytest.mark.parametrize("folder", ["/none", "./none", "~/none", "none", "a/b/c"])
def test_an_adapter_is_refused_when_it_is_no_folder(model: Path, folder: str) -> None:
    with pytest.raises(SettingsError, match=rf"chat's adapter {folder} is no folder"):
        check(model, folder)


def test_an_adapter_is_refused_when_its_rank_is_above_the_greatest(model: Path, adapter: Path) -> None:
    with pytest.raises(SettingsError, match="has rank 8; --max-lora-rank allows 4"):
        check(model, adapter, "--max-lora-rank", "4")


def test_a_tenant_has_the_name_that_the_control_plane_allows() -> None:
    assert NAME.pattern == TENANT_NAME
