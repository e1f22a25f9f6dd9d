"""The device's own groups that are too small for Marlin's blocks are left out when its layers are split."""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from engine_rig import make_engine_info

from pdmuxd.engine.core.errors import PartitionError
from pdmuxd.engine.core.partitions import PartitionTable
from pdmuxd.engine.core.policies.registry import build_policy
from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.internals.marlin_locks import MarlinLayer, why_shared
from pdmuxd.engine.sglang.launch import main, mode, server
from pdmuxd.engine.sglang.launch.mode import marlin_waiting
from pdmuxd.engine.sglang.marlin_blocks import why_no_room, with_room
from pdmuxd.engine.sglang.partition_tables import (
    default_table,
    make_table,
    sm_rules_of,
    stream_groups,
    without_small,
)

RULES = sm_rules_of(132, capability=9)
OWN = tuple((split.prefill_sms, split.decode_sms) for split in default_table(RULES).splits)
FEW_BITS = {"quantization_config": {"quant_method": "gptq", "bits": 4}}
LLAMA_8B = {
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 32,
}


@pytest.fixture(autouse=True)
def tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(mode.SPLIT_MARLIN, "1")


def written(folder: Path, *parts: dict[str, Any]) -> str:
    config: dict[str, Any] = {}
    for part in parts:
        config |= part
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def waiting(folder: Path, *parts: dict[str, Any], tp_size: int = 1) -> int:
    return marlin_waiting(written(folder, *parts), (), tp_size=tp_size, sms=132)


def tables(
    blocks: int, policy: str = "auto", partitions: tuple[tuple[int, int], ...] | None = None
) -> tuple[PartitionTable, PartitionTable]:
    """What is made without Marlin's blocks, and with so many."""
    environment = PluginEnvironment(policy=policy, link=None, partitions=partitions)
    made = make_table(RULES, environment)
    return made, without_small(made, environment, blocks)


def splits(table: PartitionTable) -> list[tuple[int, int]]:
    return [(split.prefill_sms, split.decode_sms) for split in table.splits]


def loaded(*sizes: tuple[int, int]) -> list[MarlinLayer]:
    return [MarlinLayer(name="l", locks=None, inputs=i, outputs=o) for i, o in sizes]


def refused(layers: list[MarlinLayer], table: PartitionTable) -> str:
    """What the engine says of layers that it has loaded."""
    groups = [
        StreamGroup(prefill_sms=one.prefill_sms, decode_sms=one.decode_sms, prefill=None, decode=None)
        for one in table.groups
    ]
    return why_shared(type("Model", (), {"modules": lambda self: ()})(), layers, groups)


@pytest.mark.parametrize(
    ("changed", "tp_size", "layers", "blocks"),
    [
        ({}, 1, [(4096, 6144), (4096, 4096), (4096, 28672), (14336, 4096)], 10),
        ({}, 4, [(4096, 1536), (1024, 4096), (4096, 7168), (3584, 4096)], 23),
        ({"intermediate_size": 1024}, 1, [(4096, 6144), (4096, 4096), (4096, 2048), (1024, 4096)], 18),
        # Eight KV heads on sixteen GPUs: each has one, which another has, too.
        ({"hidden_size": 8192}, 16, [(8192, 1024), (512, 8192), (8192, 1792), (896, 8192)], 34),
    ],
)
def test_as_many_blocks_are_reckoned_with_as_a_ranks_layers_have_when_they_are_loaded(
    tmp_path: Path, changed: dict[str, Any], tp_size: int, layers: list[tuple[int, int]], blocks: int
) -> None:
    shape = LLAMA_8B | changed
    assert waiting(tmp_path, shape, FEW_BITS, tp_size=tp_size) == blocks
    assert waiting(tmp_path, {"text_config": shape}, FEW_BITS, tp_size=tp_size) == blocks
    assert max(layer.most_waiting(132) for layer in loaded(*layers)) == blocks


@pytest.mark.parametrize(
    "parts",
    [
        (LLAMA_8B,),
        (LLAMA_8B, FEW_BITS, {"num_experts": 8}),
        (LLAMA_8B, FEW_BITS, {"layer_types": ["mamba"]}),
        (LLAMA_8B, {"quantization_config": {"quant_method": "fp8"}}),
    ],
)
def test_no_blocks_are_reckoned_with_when_the_model_is_not_split_with_locks_of_its_own(
    tmp_path: Path, parts: tuple[dict[str, Any], ...]
) -> None:
    assert waiting(tmp_path, *parts) == 0


def test_no_blocks_are_reckoned_with_when_the_variable_is_not_set_or_nothing_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert waiting(tmp_path, FEW_BITS) == 1, "no sizes in the configuration"
    assert marlin_waiting("meta/llama", (), tp_size=1, sms=132) == 0
    monkeypatch.delenv(mode.SPLIT_MARLIN)
    assert waiting(tmp_path, LLAMA_8B, FEW_BITS) == 0


@pytest.mark.parametrize("blocks", [1, 5, 8, 9, 10, 16, 17, 23, 27, 34, 40, 41, 64, 200])
def test_as_many_groups_as_possible_are_kept_when_blocks_are_to_find_room(blocks: int) -> None:
    kept = max(with_room(blocks, OWN), key=len)
    assert not kept or why_no_room(blocks, kept, 132) == ""
    larger = combinations(OWN, len(kept) + 1)
    assert all(why_no_room(blocks, more, 132) for more in larger)


@pytest.mark.parametrize("role", [0, 1])
@pytest.mark.parametrize(("split", "has_room"), [((19, 10), True), ((18, 10), False), ((19, 9), False)])
def test_two_products_of_ten_blocks_find_room_when_one_side_has_nineteen_sms_and_the_other_ten(
    role: int, split: tuple[int, int], has_room: bool
) -> None:
    turned = split if role == 0 else (split[1], split[0])
    assert (why_no_room(10, [turned], 132) == "") is has_room
    assert (turned in with_room(10, [turned])[role]) is has_room


@pytest.mark.parametrize(
    ("tp_size", "layers", "kept"),
    [(1, (14336, 4096), list(OWN[1:])), (4, (4096, 1536), list(OWN[2:]))],
)
def test_the_engine_agrees_with_the_splits_that_are_left_when_layers_are_as_wide_as_reckoned(
    tmp_path: Path, tp_size: int, layers: tuple[int, int], kept: list[tuple[int, int]]
) -> None:
    made, table = tables(waiting(tmp_path, LLAMA_8B, FEW_BITS, tp_size=tp_size))
    assert splits(made) == list(OWN)
    assert splits(table) == kept
    assert refused(loaded(layers), made)
    assert refused(loaded(layers), table) == ""
    assert refused(loaded(layers, (4096, 512)), table).startswith("l with 512 outputs: 64 of Marlin's blocks")


@pytest.mark.parametrize(
    ("blocks", "policy", "partitions"),
    [
        (0, "auto", None),
        (4, "auto", None),
        (10, "auto", ((124, 8), (84, 48))),
        (64, "auto", None),
        (10, "static:124,8", None),
        (10, "duet", None),
    ],
)
def test_the_table_is_the_same_when_leaving_groups_out_is_not_needed_or_not_wanted_or_does_not_help(
    blocks: int, policy: str, partitions: tuple[tuple[int, int], ...] | None
) -> None:
    made, table = tables(blocks, policy, partitions)
    assert table is made


@pytest.mark.parametrize(
    ("policy", "kept"),
    [
        ("static:16,116", [*OWN[2:], (16, 116)]),
        ("static:20,112", [*OWN[1:], (20, 112)]),
        ("chunked:64", OWN[1:]),
    ],
)
def test_the_policys_own_split_is_kept_when_others_are_left_out(
    policy: str, kept: list[tuple[int, int]]
) -> None:
    assert splits(tables(10, policy)[1]) == list(kept)


def test_a_policy_is_refused_with_what_to_set_when_it_names_a_split_that_was_left_out() -> None:
    table = tables(10)[1]
    context = make_engine_info(table=table).context(None)
    assert splits(build_policy("muxwise", context).table) == list(OWN[1:])
    says = r"^policy static:124,8 needs SM split 124,8, made only when the engine starts: set engine.sglang"
    with pytest.raises(PartitionError, match=says):
        stream_groups(build_policy("static:124,8", context), table)


@pytest.mark.parametrize(
    ("options", "config", "expected", "says"),
    [
        ((), FEW_BITS, mode.SPLIT, ", without 124,8: too small for 10 of Marlin's blocks, which may wait"),
        ((), {}, mode.SPLIT, "10 partition groups: 132,0;124,8;116,16;"),
        (
            ("--partitions", "124,8;84,48"),
            FEW_BITS,
            "fused steps: 10 of Marlin's blocks may wait for each other, and 8 surely find room",
            "4 partition groups: 132,0;124,8;84,48;0,132",
        ),
    ],
)
def test_the_launcher_says_what_it_leaves_out_and_serves_the_rest(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    config: dict[str, Any],
    expected: str,
    says: str,
) -> None:
    served: list[PartitionTable] = []
    monkeypatch.setattr(main, "check_environment", lambda: None)
    monkeypatch.setattr(main, "check_listening", lambda host, port, key: None)
    monkeypatch.setattr(server, "serve", lambda arguments, table, *_: served.append(table))
    model = written(tmp_path, LLAMA_8B, config)
    assert main.main(["--model", model, *options, "--", "--device", "cpu"]) == 0
    said = capsys.readouterr().err
    assert f"pdmuxd: the model is expected to be served {expected}\n" in said
    (groups,) = [line for line in said.splitlines() if "partition groups" in line]
    assert says in groups
    assert f"pdmuxd: {len(served[0].groups)} partition groups: " in groups
