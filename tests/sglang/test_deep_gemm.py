"""DeepGEMM's products with SGLang's layers and in the process that compiles; the GPU is missing."""

import re

from sglang_programs import said_by

PROGRAM = """
import json
import logging
import sys
import types
import torch
from sglang.srt.layers.linear import ReplicatedLinear
from sglang.srt.layers.quantization.fp8 import Fp8Config
from pdmuxd.engine.loop.streams import StreamGroup
from pdmuxd.engine.sglang.internals import deep_gemm_child, deep_gemm_kernels, deep_gemm_sms
from pdmuxd.engine.sglang.streams.partition_kernels import PartitionKernels

said = {}
blocks = Fp8Config(
    is_checkpoint_fp8_serialized=True, activation_scheme="dynamic", weight_block_size=[128, 128]
)
model = torch.nn.ModuleList([
    ReplicatedLinear(256, 384, bias=False, params_dtype=torch.bfloat16, quant_config=blocks),
    ReplicatedLinear(256, 384, bias=False, params_dtype=torch.bfloat16, quant_config=blocks),
    ReplicatedLinear(256, 512, bias=False, params_dtype=torch.bfloat16),
    torch.nn.Linear(256, 640, bias=False),
])
shapes = deep_gemm_sms.fp8_shapes(model)
said["shapes"] = sorted(shapes)

class Library(types.ModuleType):
    __version__ = "0.2.3"
    sms = 132
    launched = []

    def get_num_sms(self):
        return self.sms

    def set_num_sms(self, number):
        self.sms = number

    def fp8_gemm_nt(self, x, weights, out):
        same = torch.equal(x[0].float() @ weights[0].float().T, torch.zeros_like(out).float())
        self.launched.append([self.sms, *x[0].shape, *x[1].shape, *weights[1].shape, *out.shape, same])

library = sys.modules["deep_gemm"] = Library("deep_gemm")
words = {"sms": 100, "rows": [16, 192], "shapes": [[384, 256]]}
torch.empty = torch.zeros  # so that there is a result to compare
deep_gemm_child.launch(words, device="cpu")
said["launched"] = library.launched[:]

import sglang.srt.layers.deep_gemm_wrapper.entrypoint as entrypoint
entrypoint.deep_gemm = library  # SGLang imports it where there is a GPU
kernels = PartitionKernels(in_force=None, total_sms=132)
library.sms = 132
deep_gemm_sms.tell(kernels, library, shapes, {100})
library.launched.clear()
x = (torch.zeros(7, 256).to(torch.float8_e4m3fn), torch.zeros(7, 2))
weights = (torch.zeros(384, 256).to(torch.float8_e4m3fn), torch.zeros(3, 2))
for sms in (100, 132):
    with kernels.on(sms):
        entrypoint.gemm_nt_f8f8bf16(x, weights, torch.zeros(7, 384))
said["told"] = [sms for sms, *_ in library.launched]

warned = []
logging.getLogger(deep_gemm_kernels.__name__).addFilter(lambda record: warned.append(record.getMessage()))
groups = [StreamGroup(prefill_sms=100, decode_sms=32, prefill=None, decode=None)]
wanted = [*deep_gemm_kernels.works(groups, shapes, 132)]
sms = deep_gemm_kernels.compile_ahead(wanted, version="1", gpu=0, free_bytes=10**10)
said |= {"compiled": sorted(sms), "warned": warned}
print(json.dumps(said))
"""


def test_sglangs_products_are_told_and_a_process_that_cannot_compile_costs_no_start(python, tmp_path):
    variables = {"SGLANG_DG_CACHE_DIR": str(tmp_path), "SGLANG_JIT_DEEPGEMM_PRECOMPILE": "0"}
    said = said_by(python, PROGRAM, variables=variables)
    assert said["shapes"] == [[384, 256]]
    assert said["launched"] == [[100, rows, 256, rows, 2, 3, 2, rows, 384, True] for rows in (16, 192)]
    assert said["told"] == [100, 132]
    assert said["compiled"] == []
    ended = re.findall(r"not told of (\d+) SMs: .* ended with 1: RuntimeError", "\n".join(said["warned"]))
    assert ended == ["132", "100", "32"]
