"""What a prefill and a decode step both write is found by running them, or kept apart."""

import json
import subprocess

import pytest

PROGRAM = """
import json
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from pdmuxd.engine.sglang.internals.watching import Watch

GLOBAL = torch.zeros(2, 3)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 4), requires_grad=False)
        self.transposed = self.weight.t()
        self.register_buffer("table", torch.arange(4.0))
        self.room = torch.zeros(1000, dtype=torch.int32)
        self.quant_method = SimpleNamespace(sizes=torch.zeros(4, dtype=torch.int64))
        self.parts = [torch.zeros(3), torch.zeros(3)]
        self.locks = torch.zeros(8)


def past_torch(tensor, value):
    np.asarray(tensor)[...] = value  # as a kernel that PyTorch knows nothing of


def swapped(tensor):
    past_torch(tensor, tensor.flip(0).numpy().copy())


def make(write):
    def launch(layer, pool, backend):
        rows = torch.ones(5, 4) @ layer.weight  # what a forward makes for itself
        rows.add_(1)
        pool.k_buffer[0][:5] = rows
        write(layer, backend)

    return launch


CASES = {
    "nothing": make(lambda layer, backend: torch.softmax(layer.table, 0)),
    "room": make(lambda layer, backend: layer.room.fill_(7)),
    "view": make(lambda layer, backend: torch.add(layer.room[2:4], 1, out=layer.room[2:4])),
    "buffer": make(lambda layer, backend: layer.table.mul_(2)),
    "list": make(lambda layer, backend: layer.parts[1].zero_()),
    "global": make(lambda layer, backend: GLOBAL.zero_()),
    "past": make(lambda layer, backend: past_torch(layer.quant_method.sizes, layer.quant_method.sizes + 1)),
    "order": make(lambda layer, backend: swapped(layer.order)),
    "backend": make(lambda layer, backend: past_torch(backend.wrap, backend.wrap + 1)),
    "locks": make(lambda layer, backend: past_torch(layer.locks, 0)),
}
said = {}
with torch.inference_mode():
    for name, launch in CASES.items():
        model, backend = nn.Sequential(Layer(), Layer()), SimpleNamespace(wrap=torch.zeros(70), None_=None)
        model[0].order = torch.arange(3000)
        pool = SimpleNamespace(inner=SimpleNamespace(k_buffer=[torch.zeros(9, 4)]))
        watch = Watch(model, (backend,), (pool,))
        for _ in range(2):
            with watch.one():
                launch(model[0], pool.inner, backend)
        said[name] = watch.found()
    model = nn.Sequential(Layer())
    watch = Watch(model, (), ())
    with watch.one():
        model[0].room.fill_(1)
    with watch.one():
        model[0].locks.fill_(1)
    said["by one alone"] = watch.found()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(python):
    done = subprocess.run([python, "-P", "-c", PROGRAM], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("room", "room of Layer is written by prefill and by decode (by aten.fill_.Scalar)"),
        ("view", "room of Layer is written by prefill and by decode (by aten.add.out)"),
        ("buffer", "table of Layer is written by prefill and by decode (by aten.mul_.Tensor)"),
        ("list", "parts of Layer is written by prefill and by decode (by aten.zero_.default)"),
        ("global", "a tensor of shape (2, 3) is written by prefill and by decode (by aten.zero_.default)"),
        ("past", "sizes of Layer is written by prefill and by decode (by a kernel)"),
        ("order", "order of Layer is written by prefill and by decode (by a kernel)"),
        ("backend", "wrap of SimpleNamespace is written by prefill and by decode (by a kernel)"),
    ],
)
def test_what_both_write_is_named(said, case, told):
    assert said[case] == told


@pytest.mark.parametrize("case", ["nothing", "by one alone", "locks"])
def test_nothing_is_named_when_both_write_pools_and_what_they_make_themselves(said, case):
    assert said[case] == ""


BUFFERS = """
import json

import torch
from pdmuxd.engine.sglang.api.symbols import flashinfer
from pdmuxd.engine.sglang.internals import role_buffers

utils, device, role = flashinfer().utils, torch.device("cpu"), {"prefill": False}
before = utils._get_cache_buf("counts", 64, device, zero_init=True)
role_buffers.keep_apart(utils, lambda: role["prefill"])


def asked(bytes_, *, prefill):
    role["prefill"] = prefill
    return utils._get_cache_buf("counts", bytes_, device, zero_init=True)


decode, prefill = asked(64, prefill=False), asked(64, prefill=True)
prefill.fill_(1)
grown = asked(128, prefill=True)
print(json.dumps({
    "kept": decode is before,
    "apart": prefill.data_ptr() != decode.data_ptr() and not bool(decode.any()),
    "again": asked(64, prefill=False) is decode and asked(128, prefill=True) is grown,
    "grown": grown.numel(),
}))
"""


def test_prefill_and_decode_have_buffers_of_their_own_in_flashinfer(python):
    done = subprocess.run([python, "-P", "-c", BUFFERS], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"kept": True, "apart": True, "again": True, "grown": 128}
