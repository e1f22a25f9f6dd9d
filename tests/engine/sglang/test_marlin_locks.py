"""Prefill launches Marlin with locks of its own, and nothing else does."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.internals import marlin_locks
from pdmuxd.engine.sglang.internals.marlin_locks import MarlinLayer, keep_apart, marlin_layers, why_shared
from pdmuxd.engine.sglang.internals.shared_state import shared_by_streams
from pdmuxd.engine.sglang.launch.mode import MARLIN_EXPERTS

SMS = 132
MODULES = ("marlin_utils", "marlin_utils_fp8", "marlin_utils_fp4")


class Tensor:
    """As much of one as is looked at."""

    def __init__(self, *shape: int, dtype: str = "int32") -> None:
        self.shape, self.dtype, self.device = shape, dtype, "cuda:0"

    def data_ptr(self) -> int:
        return id(self)

    def is_floating_point(self) -> bool:
        return self.dtype.startswith("float")

    def dim(self) -> int:
        return len(self.shape)


class LinearBase:
    def __init__(self, inputs: int = 4096, outputs: int = 4096, **fields: Any) -> None:
        self.input_size, self.output_size = inputs, outputs
        self.__dict__.update(fields)


class ColumnParallel(LinearBase):
    pass


def gemm(a, c, b_q_weight, b_scales, global_scale, b_zeros, g_idx, perm, workspace, b_q_type, size_m):
    """SGLang's parameters, in its order; returns the locks that it is launched with."""
    return workspace


def kind(name: str, **fields: Any) -> object:
    return type(name, (), fields)()


def model(*layers: object) -> SimpleNamespace:
    return SimpleNamespace(modules=lambda: layers)


def groups(*splits: tuple[int, int]) -> tuple[StreamGroup, ...]:
    sizes = ((SMS, 0), *splits, (0, SMS))
    return tuple(StreamGroup(prefill_sms=p, decode_sms=d, prefill=None, decode=None) for p, d in sizes)


@pytest.fixture(autouse=True)
def api(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    modules = {name: SimpleNamespace(gptq_marlin_gemm=gemm) for name in MODULES}
    found = SimpleNamespace(marlin_make_workspace=lambda device: Tensor(SMS), **modules)
    monkeypatch.setattr(marlin_locks, "marlin", lambda: found)
    monkeypatch.setattr(marlin_locks, "sglang", lambda: SimpleNamespace(Linear=LinearBase))
    return found


def by_position(module: Any, locks: Tensor) -> object:
    return module.gptq_marlin_gemm(*range(8), locks, "u4", size_m=3)


def by_name(module: Any, locks: Tensor) -> object:
    given = dict.fromkeys(("a", "c", "b_q_weight", "b_scales", "global_scale", "b_zeros", "g_idx", "perm"))
    return module.gptq_marlin_gemm(**given, workspace=locks, b_q_type="u4", size_m=3)


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("launch", [by_position, by_name])
def test_only_prefill_is_launched_with_its_own_locks(api: SimpleNamespace, name: str, launch: Any) -> None:
    (layer,) = marlin_layers(model(LinearBase(workspace=Tensor(SMS))))
    role = {"prefill": False}
    own = keep_apart([layer], lambda: role["prefill"])
    assert own is not layer.locks
    assert (own.shape, own.dtype) == (layer.locks.shape, layer.locks.dtype)
    module, launched = getattr(api, name), []
    for is_prefill in (False, True, False, True, True, False):
        role["prefill"] = is_prefill
        launched.append(launch(module, layer.locks) is own)
    assert launched == [False, True, False, True, True, False]


@pytest.mark.parametrize(
    "layer",
    [
        LinearBase(workspace=Tensor(SMS)),
        LinearBase(scheme=kind("CompressedTensorsWNA16", workspace=Tensor(SMS))),
        LinearBase(quant_method=kind("M", scheme=kind("S", kernel=kind("K", workspace=Tensor(SMS))))),
    ],
)
def test_prefill_gets_locks_when_a_linear_layer_holds_marlins(layer: LinearBase) -> None:
    found = marlin_layers(model(kind("RMSNorm"), layer))
    assert [one.name for one in found] == ["LinearBase"]
    assert shared(layer).startswith("LinearBase keeps locks of Marlin")
    assert shared(layer, decodes_own={id(one.locks) for one in found}) == ""


@pytest.mark.parametrize(
    "layer",
    [
        kind("FusedMoE", workspace=Tensor(4 * SMS)),
        kind("FusedMoE", workspace=Tensor(SMS)),
        kind("ParallelLMHead", workspace=Tensor(SMS)),
        LinearBase(workspace=Tensor(4 * SMS)),
        LinearBase(workspace=Tensor(90_000, dtype="uint8")),
        LinearBase(workspace=Tensor(SMS, dtype="uint8")),
        LinearBase(workspace=Tensor(1, dtype="float32")),
        LinearBase(workspace=Tensor(SMS, 1)),
    ],
)
def test_a_workspace_stays_refused_when_it_is_not_a_linear_layers_locks(layer: object) -> None:
    assert marlin_layers(model(layer)) == []
    assert "which both streams would write (workspace)" in shared(layer)


def shared(layer: object, **named: Any) -> str:
    flags = SimpleNamespace(moe_a2a_backend="none", enable_torch_compile=False, cpu_offload_gb=0)
    return shared_by_streams(model(layer), flags, attention=(), tp_size=1, **named)


def test_a_model_stays_refused_when_its_experts_are_of_few_bits() -> None:
    layer = LinearBase(workspace=Tensor(SMS))
    plain = kind("FusedMoE", quant_method=kind("UnquantizedFusedMoEMethod"))
    few = type("DeepEPMoE", (type(kind("FusedMoE")),), {"quant_method": kind("GPTQMarlinMoEMethod")})()
    assert why_shared(model(layer, plain), marlin_layers(model(layer)), groups((84, 48))) == ""
    assert why_shared(model(layer, few), marlin_layers(model(layer)), groups((84, 48))) == MARLIN_EXPERTS


def test_sizes_are_a_ranks_when_several_share_a_layer() -> None:
    column = ColumnParallel(outputs=8192, workspace=Tensor(SMS), output_partition_sizes=[2048, 512])
    row = LinearBase(inputs=8192, workspace=Tensor(SMS), input_size_per_partition=4096)
    assert [(one.inputs, one.outputs) for one in marlin_layers(model(column, row))] == [
        (4096, 2560),
        (4096, 4096),
    ]


def waiting(inputs: int, outputs: int, *, sms: int, deep: int, wide: int) -> int:
    """Blocks of the longest column, as the kernel divides the tiles of one product among its blocks."""
    rows, columns = inputs // deep, outputs // wide
    share = -(-rows * columns // sms)
    return max((((at + 1) * rows - 1) // share) - at * rows // share + 1 for at in range(columns))


@pytest.mark.parametrize("sms", [108, 132, 148])
@pytest.mark.parametrize("tile", [(64, 256), (128, 128), (64, 128), (128, 64)])
def test_no_more_blocks_wait_than_are_reckoned_with(sms: int, tile: tuple[int, int]) -> None:
    deep, wide = tile
    for inputs in (256, 896, 2048, 4096, 14336):
        for outputs in (256, 1024, 1536, 4096, 6144, 28672):
            layer = MarlinLayer(name="l", locks=None, inputs=inputs, outputs=outputs)
            assert waiting(inputs, outputs, sms=sms, deep=deep, wide=wide) <= layer.most_waiting(sms)


@pytest.mark.parametrize(
    ("inputs", "outputs", "splits", "is_split"),
    [
        (4096, 4096, ((116, 16), (84, 48)), True),
        (4096, 1024, ((116, 16), (84, 48)), False),
        (512, 1024, ((116, 16), (84, 48)), True),
        (4096, 4096, ((124, 8), (84, 48)), False),
        # Ten blocks find room in 16 SMs, but not beside ten of the other stream's.
        (4096, 4096, ((116, 16), (16, 116)), False),
        (4096, 1024, (), True),
    ],
)
def test_a_model_stays_refused_when_blocks_that_wait_for_each_other_may_find_no_room(
    inputs: int, outputs: int, splits: tuple[tuple[int, int], ...], is_split: bool
) -> None:
    layer = LinearBase(inputs, outputs, workspace=Tensor(SMS))
    why = why_shared(model(layer), marlin_layers(model(layer)), groups(*splits))
    assert (why == "") is is_split
    assert is_split or f"LinearBase with {outputs} outputs: " in why
