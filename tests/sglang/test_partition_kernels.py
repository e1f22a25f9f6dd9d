"""SGLang's products and head, launched on a partition: PyTorch's process-wide settings inside and after."""

from sglang_programs import said_by

PROGRAM = """
import contextlib
import json
import torch
from pdmuxd.engine.loop.streams import StreamGroup
from sglang.srt.layers.linear import ReplicatedLinear
from sglang.srt.layers.quantization.unquant import UnquantizedLinearMethod
from pdmuxd.engine.sglang.internals import partition_kernels as hooks
from pdmuxd.engine.sglang.internals import kernel_timing
from pdmuxd.engine.sglang.internals.kernel_timing import products_of
from pdmuxd.engine.sglang.streams.gemm import CUBLASLT, Gemm

kernels = hooks.make_kernels(132)
kernels.choices.keep(112, (6, 4), 8, Gemm(CUBLASLT, 104))

def in_force():
    return [torch._C._get_sm_carveout_experimental(), str(torch._C._get_blas_preferred_backend())]

class Layer:
    weight = torch.ones(6, 4)

seen = []

def original(method, layer, x, bias=None):
    seen.append(in_force())
    return x @ layer.weight.t()

def failing(*args):
    raise RuntimeError("as a kernel may")

x = torch.ones(5, 4)
said = {"before": in_force()}
hooks.launch_product(kernels, original, None, Layer, x)
with kernels.on(112):
    out = hooks.launch_product(kernels, original, None, Layer, x)
    said["behind"] = in_force()
    hooks.launch_product(kernels, original, None, Layer, x[None])
    hooks.launch_head(kernels, lambda processor, x, head: original(None, head, x), None, x, Layer)
    try:
        hooks.launch_product(kernels, failing, None, Layer, x)
    except RuntimeError:
        said["failed"] = in_force()
    kernels.attention = True
    said["margin"] = hooks.launch_attention(kernels, lambda q, **named: named, x, ver=3)
said["margin outside"] = hooks.launch_attention(kernels, lambda q, **named: named, x, ver=3)
said |= {"seen": seen, "out": list(out.shape), "after": in_force()}
layer = ReplicatedLinear(4, 6, bias=False, params_dtype=torch.bfloat16)
model = torch.nn.Module()
model.layers = torch.nn.ModuleList([layer, ReplicatedLinear(4, 6, bias=False, params_dtype=torch.bfloat16)])
model.lm_head = torch.nn.Linear(4, 9, bias=False, dtype=torch.bfloat16)
products, head = products_of(model)
said["products"] = {str(shape): len(weights) for shape, weights in products.items()}
said["head"] = head

# Timing, with a device whose cuBLASLt told of 8 SMs fewer is the fastest from 512 rows on.
class Event:
    def __init__(self, enable_timing): pass
    def record(self, stream): pass
    def synchronize(self): pass
    def elapsed_time(self, end): return end.took_ms

class Graph:
    def capture_begin(self, capture_error_mode): self.gemm = kernels._in_force.in_force
    def capture_end(self): pass
    def replay(self):
        target = self.gemm.target_sms
        if self.gemm.library == CUBLASLT and target is None: raise RuntimeError("refused")
        Event.took_ms = 1.0 if target == 104 and current[0] >= 512 else 2.0 if target is None else 3.0

current = [0]
torch.cuda.Event, torch.cuda.CUDAGraph, torch.cuda.stream = Event, Graph, contextlib.nullcontext
torch.cuda.get_device_name = lambda: "fake"
multiply = kernel_timing._multiply_all
def noted(x, weights, out):
    current[0] = x.shape[0]
    multiply(x, weights, out)
kernel_timing._multiply_all = noted
fresh = hooks.make_kernels(132)
kernels = fresh
Stream = type("Stream", (), {"synchronize": lambda self: None})
groups = [StreamGroup(prefill_sms=112, decode_sms=20, prefill=Stream(), decode=Stream())]
kernel_timing.KernelTiming(fresh, model).run(groups, 16)
found = fresh.choices.to_json()
said["timed"] = found["112:6x4"]
said["head"] = [said["head"], sorted(map(int, found["112:9x4"]))[-1], sorted(map(int, found["20:9x4"]))]
said["left"] = in_force()
print(json.dumps(said))
"""


def test_products_on_a_partition_run_as_chosen_and_the_settings_are_put_back(python):
    said = said_by(python, PROGRAM)
    whole, chosen = said["before"], [132 - 104, "_BlasBackend.Cublaslt"]
    assert whole == [None, "_BlasBackend.Cublas"]
    assert said["seen"] == [whole, chosen, chosen, chosen]
    assert said["behind"] == said["failed"] == said["after"] == whole
    assert said["out"] == [5, 6]
    assert (said["margin"], said["margin outside"]) == ({"ver": 3, "sm_margin": 20}, {"ver": 3})
    assert said["products"] == {"(6, 4)": 2, "(9, 4)": 1}
    assert said["head"] == [[9, 4], 256, [8, 16]]
    few = {str(rows): "cublas" for rows in (128, 256, 384)}
    many = {str(rows): "cublaslt@104" for rows in (512, 768, 1024, 1536, 2048, 3072, 4096, 8192)}
    assert said["timed"] == few | many
    assert said["left"] == whole
