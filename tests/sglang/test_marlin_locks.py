"""Models whose products are Marlin's, split: the stock engine's answers, and locks of prefill's own.

Marlin runs on GPUs alone. Here SGLang's classes for it are given a kernel of plain PyTorch.
"""

import asyncio
import json
import re
from pathlib import Path

import made_up_marlin
import made_up_weights
import pytest
import sglang_plugin
from changing_policies import ask_by_layers, varied_answers
from sglang_processes import Link, OurServer, StockServer
from sglang_programs import said_by

from gpu_servers.model_folder import SHAPES, write_model_folder
from pdmuxd.engine.sglang.launch import mode

FLAGS = ("--load-format", "dummy")
QUANTIZED = {"quantization_config": SHAPES["llama-8b-gptq"]["quantization_config"]}


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    files = [Path(made_up_weights.__file__), Path(made_up_marlin.__file__)]
    return sglang_plugin.install(folder, made_up_marlin.NAME, files[1].stem, files)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return write_model_folder("tiny", folder, torch_dtype="float32", **QUANTIZED)


def test_answers_are_stock_sglangs_when_prefill_has_locks_of_its_own(
    python, variables, prompts, model, tmp_path
):
    asked = prompts.first(24)
    (tmp_path / "stock").mkdir()
    with StockServer(python, model, tmp_path / "stock", flags=FLAGS, variables=variables) as stock:
        expected = varied_answers(stock, asked)
        assert "MARLIN others 64 launches" in stock.log
    tried = dict(variables) | {mode.SPLIT_MARLIN: "1"}
    with OurServer(python, model, tmp_path, flags=FLAGS, variables=tried) as ours:
        modes = asyncio.run(ask_by_layers(ours, asked, expected))
    assert modes["split"] > 20
    assert "prefill has locks of its own for Marlin's products: 16 layers" in ours.log
    launched = re.findall(r"MARLIN (\w+) (\d+) launches, (\d+) locks", ours.log)
    most = {who: (int(count), int(locks)) for who, count, locks in launched}
    assert most["prefill"][0] > 500
    assert (most["prefill"][1], most["others"][1]) == (1, 16)


async def test_the_model_is_not_split_when_the_variable_is_not_set(python, variables, model, tmp_path):
    with OurServer(python, model, tmp_path, policy="auto", flags=FLAGS, variables=variables) as ours:
        async with Link(ours.link_address) as link:
            await link.greeted()
            assert link.hello.unsplit == mode.MARLIN
    config = json.loads((model / "config.json").read_text())
    assert mode.why_fused(config) == mode.MARLIN
    assert mode.why_fused(config, marlin=True) == ""
    assert "MARLIN prefill" not in ours.log
    assert "locks of its own" not in ours.log


WIDE = {"hidden_size": 1024, "intermediate_size": 2048, "num_attention_heads": 16, "head_dim": 64}
"""At most 32 blocks of its `down_proj` wait for each other, and 16 of its other layers."""


async def test_a_model_is_split_on_the_devices_own_splits_when_small_ones_are_left_out(
    python, variables, tmp_path
):
    wide = write_model_folder("tiny", tmp_path / "wide", torch_dtype="float32", **QUANTIZED, **WIDE)
    tried = dict(variables) | {mode.SPLIT_MARLIN: "1"}
    with OurServer(python, wide, tmp_path, policy="auto", flags=FLAGS, variables=tried) as ours:
        async with Link(ours.link_address) as link:
            await link.greeted()
            assert link.hello.unsplit == ""
            assert min(sms for split in link.hello.partitions for sms in split if sms) == 32
    assert "without 124,8;116,16;108,24;52,80: too small for 32 of Marlin's blocks" in ours.log
    assert "prefill has locks of its own for Marlin's products" in ours.log


MADE_UP = """
import json
from types import SimpleNamespace

import torch
from torch import nn
from pdmuxd.engine.sglang.api.symbols import sglang
from sglang.srt.layers.quantization import marlin_utils, marlin_utils_fp4, marlin_utils_fp8

launched = []


def gemm(a, workspace):
    launched.append(workspace)
    if a is None:
        raise RuntimeError("no input")
    return a


def locks(device, max_blocks_per_sm=1):
    return torch.zeros(132 * max_blocks_per_sm, dtype=torch.int)


marlin_utils.marlin_make_workspace = locks
modules = (marlin_utils, marlin_utils_fp8, marlin_utils_fp4)
for module in modules:
    module.gptq_marlin_gemm = gemm


class Linear(sglang().Linear):
    def __init__(self, outputs=256):
        nn.Module.__init__(self)
        self.input_size, self.output_size = 4096 if outputs == 1024 else 256, outputs
        self.workspace = locks(None)

    def forward(self, x):
        for module in modules:
            x = module.gptq_marlin_gemm(x, workspace=self.workspace)
        return x


def is_patched():
    return [module.gptq_marlin_gemm is not gemm for module in modules]


"""
PAUSES = (
    MADE_UP
    + """
from pdmuxd.engine.sglang.internals import marlin_locks
from pdmuxd.engine.sglang.internals.layerpauses import LayerPauses, PausedForward, decoder_layers


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Linear() for _ in range(4))

    def forward(self, x, broken_at=None):
        for number, layer in enumerate(self.layers):
            x = layer(None if number == broken_at else x)
        return x


model, ones = Model(), torch.ones(1)
found = marlin_locks.marlin_layers(model)
pauses = LayerPauses(decoder_layers(model, 4))
own = marlin_locks.keep_apart(found, lambda: pauses.running is not None)
layers = [layer.workspace for layer in model.layers]
names = {id(own): "own"} | {id(one): f"layer {number}" for number, one in enumerate(layers)}


def begun(**named):
    attention = SimpleNamespace(forward_metadata=None)
    return PausedForward(pauses, lambda: model(ones, **named), None, attention)


def told(act):
    launched.clear()
    try:
        act()
    except RuntimeError as error:
        launched.append(error)
    return [names.get(id(one), str(one)) for one in launched]


decode = lambda: model(ones)
first, second, broken = begun(), begun(), begun(broken_at=1)
said = {
    "before": told(decode),
    "first": told(lambda: first.advance(2)),
    "between": told(decode),
    "second": told(lambda: second.advance(1)),
    "between two": told(decode),
    "rest": told(lambda: first.advance(float("inf"))),
    "abort": told(second.close),
    "after abort": told(decode),
    "error": told(lambda: broken.advance(float("inf"))),
    "after error": told(decode),
}
print(json.dumps(said))
"""
)
OWN = ["own"] * 3
LAYERS = [f"layer {number}" for number in range(4) for _ in range(3)]


def test_what_runs_between_slices_and_after_an_abort_or_an_error_has_the_layers_locks(python):
    said = said_by(python, PAUSES)
    assert said.pop("first") == OWN * 2
    assert said.pop("second") == OWN
    assert said.pop("rest") == OWN * 2
    assert said.pop("abort") == []
    assert said.pop("error") == [*OWN, "own", "no input"]
    assert len(said) == 5
    for when, launched in said.items():
        assert launched == LAYERS, when


SPLITTING = (
    MADE_UP
    + """
from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.internals.splitting import Splitting
from pdmuxd.engine.sglang.launch import mode
from sglang.srt.layers.moe.fused_moe_triton.layer import FusedMoE
from sglang.srt.layers.quantization.unquant import UnquantizedFusedMoEMethod


class Experts(FusedMoE):
    def __init__(self, workspace=None, plain=False):
        nn.Module.__init__(self)
        if plain:
            method = UnquantizedFusedMoEMethod.__new__(UnquantizedFusedMoEMethod)
            nn.Module.__init__(method)
            self.quant_method = method
        self.workspace = workspace


def said_of(*parts, splits_marlin):
    model = nn.Module()
    model.layers = nn.ModuleList(nn.Linear(1, 1) for _ in range(4))
    model.parts = nn.ModuleList(parts)
    runner = SimpleNamespace(model=model, attn_backend=None, decode_attn_backend_group=None)
    scheduler = SimpleNamespace(
        tp_worker=SimpleNamespace(model_runner=runner),
        model_config=SimpleNamespace(is_encoder_decoder=False),
        server_args=SimpleNamespace(moe_a2a_backend="none"),
        req_to_token_pool=None,
    )
    sizes = ((132, 0), (84, 48), (116, 16), (0, 132))
    groups = [StreamGroup(prefill_sms=p, decode_sms=d, prefill=None, decode=None) for p, d in sizes]
    port = SimpleNamespace(state=SimpleNamespace(layers=4, tp_size=1))
    streams = SimpleNamespace(groups=groups)
    splitting = Splitting(scheduler, port, streams, splits_marlin=splits_marlin)
    why = splitting._without_trying()
    return [why, is_patched()]


cutlass = Linear()
cutlass.workspace = torch.empty(90_000, dtype=torch.uint8)
cases = {
    "no Marlin": said_of(Experts(plain=True), splits_marlin=True),
    "not asked for": said_of(Linear(), splits_marlin=False),
    "its experts": said_of(Linear(), Experts(), splits_marlin=True),
    "experts alone": said_of(Experts(locks(None, 4)), splits_marlin=True),
    "CUTLASS": said_of(Linear(), cutlass, splits_marlin=True),
    "narrow": said_of(Linear(1024), splits_marlin=True),
    "asked for": said_of(Linear(), Experts(plain=True), splits_marlin=True),
}
print(json.dumps(cases))
"""
)

SHARED = {"experts alone", "CUTLASS"}


def test_nothing_is_wrapped_when_a_model_is_not_split_or_has_no_marlin(python):
    said = said_by(python, SPLITTING)
    why, wrapped = said.pop("asked for")
    assert (why, wrapped) == ("", [True] * 3)
    assert {case: told[0] for case, told in said.items() if case not in SHARED | {"narrow"}} == {
        "no Marlin": "",
        "not asked for": mode.MARLIN,
        "its experts": mode.MARLIN_EXPERTS,
    }
    assert all("which both streams would write (workspace)" in said[case][0] for case in SHARED)
    assert said["narrow"][0].startswith("Linear with 1024 outputs: 34 of Marlin's blocks may wait")
    assert all(told[1] == [False] * 3 for told in said.values())


SOURCES = """
import ast, inspect, json
from pathlib import Path
import sglang
from pdmuxd.engine.sglang.internals.marlin_locks import _by_role
from sglang.kernels.ops.gemm.gptq_marlin import gptq_marlin_gemm

launch = _by_role(gptq_marlin_gemm, None, lambda: True)  # the kernel's own parameters

root = Path(sglang.__file__).parent / "srt"
callers, makers = set(), {}
for path in root.rglob("*.py"):
    text = path.read_text()
    if "workspace" not in text and "gptq_marlin_gemm" not in text:
        continue
    name = str(path.relative_to(root))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom) and any(one.name == "gptq_marlin_gemm" for one in node.names):
            callers.add(name)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Attribute):
            if node.targets[0].attr == "workspace" and isinstance(node.value, ast.Call):
                makers.setdefault(ast.unparse(node.value), []).append(name)
kept = inspect.signature(launch) == inspect.signature(gptq_marlin_gemm)
print(json.dumps({"callers": sorted(callers), "makers": makers, "kept": kept}))
"""
QUANTIZATION, KERNELS = "layers/quantization", "hardware_backend/gpu/quantization"


def test_sglang_launches_marlins_linear_kernel_and_makes_its_locks_where_it_is_expected(python):
    said = said_by(python, SOURCES)
    assert said["kept"], "its kernel takes a workspace"
    modules = ("marlin_utils", "marlin_utils_fp4", "marlin_utils_fp8")
    assert said["callers"] == [f"{QUANTIZATION}/{module}.py" for module in modules]
    assert sorted(said["makers"]["marlin_make_workspace(device)"]) == [
        f"{KERNELS}/awq_kernels.py",
        f"{KERNELS}/gptq_kernels.py",
        f"{QUANTIZATION}/compressed_tensors/schemes/compressed_tensors_wNa16.py",
        f"{QUANTIZATION}/marlin_utils_fp4.py",
        f"{QUANTIZATION}/marlin_utils_fp8.py",
    ]
    others = {make for make in said["makers"] if "marlin" in make} - {"marlin_make_workspace(device)"}
    assert others
    assert all(re.search(r"marlin_make_workspace\(.*, 4\)", make) for make in others), "of experts"
