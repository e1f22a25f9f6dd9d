"""The measurements of layers on partitions, on a CPU in place of the device: all but the kernels."""

import json
import os
import subprocess

from experiments import LAB

PROGRAM = """
import contextlib, itertools, json, sys
from pathlib import Path
import torch
from pdmuxd.engine.core.errors import EngineError
from in_sglang import partition_kernels, partition_layers as layers

now_ms = itertools.count()

class Event:
    def __init__(self, enable_timing): pass
    def record(self, stream): self.at_ms = float(next(now_ms))
    def synchronize(self): pass
    def elapsed_time(self, end): return end.at_ms - self.at_ms

class Stream:
    def __init__(self, *args, **named): pass

class Graph:
    def replay(self): replays.append(self)

class Capture:
    def __init__(self, graph, stream, pool=None): pools.append(pool)
    def __enter__(self): pass
    def __exit__(self, *_): pass

replays, pools = [], []
torch.cuda.Event, torch.cuda.Stream, torch.cuda.CUDAGraph, torch.cuda.graph = Event, Stream, Graph, Capture
torch.cuda.stream, torch.cuda.synchronize = contextlib.nullcontext, lambda: None
torch.cuda.is_available, torch.cuda.graph_pool_handle = lambda: True, object
torch.cuda.memory_reserved = lambda: 0
ones = torch.zeros
torch.zeros = lambda *size, device=None: ones(*size)
layers.DECODE_BATCHES, layers.PREFILL_TOKENS, layers.GRAPH_TOKENS = ((2, 16), (3, 8)), 32, (16, 8)
layers.BESIDE_S = 0.01
products = {"qkv": (256, 768), "o": (256, 256), "gate_up": (256, 512), "down": (256, 256)}
partition_kernels.SHAPES["llama-8b"] = products

def split(sms):
    if sms == 96: raise EngineError("the driver gave 88 SMs instead")
    if sms == 104: return None + 1
    return Stream()

partition_kernels.part = split
for what, run in partition_kernels.LAYERED.items():
    def small(shape, split, total_sms, run=run): return run(shape, split, total_sms, device="cpu", layers=2)
    partition_kernels.LAYERED[what] = small
out = Path(sys.argv[1])
codes = [partition_kernels.main([what, "--out", str(out)]) for what in partition_kernels.LAYERED]
layers.BUDGET_S = -1.0
late = [partition_kernels.main([what, "--out", str(out / "late")]) for what in partition_kernels.LAYERED]
print(json.dumps([codes, late, len(replays) > 20, any(pools)]))
"""


def test_every_row_is_measured_or_says_why_not_and_is_kept_as_it_comes(python, tmp_path):
    command = [python, "-P", "-c", PROGRAM, str(tmp_path)]
    lab = os.environ | {"PYTHONPATH": str(LAB)}
    done = subprocess.run(command, env=lab, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == [[0, 0], [1, 1], True, True]
    rows = [json.loads(line) for line in (tmp_path / "overlay.jsonl").read_text().splitlines()]
    assert len(rows) == 2 * (6 + 5)
    errors = {(row["layout"], row["prefill_sms"]): row["error"] for row in rows if "error" in row}
    assert set(errors) == {("overlay", 96), ("overlay", 104)}
    assert errors["overlay", 96] == "the driver gave 88 SMs instead"
    assert "unsupported operand" in errors["overlay", 104]
    whole = next(row for row in rows if row["layout"] == "disjoint")
    assert whole["decode_ms"] > 0
    assert whole["prefill_tokens_per_s"] > 0
    rows = [json.loads(line) for line in (tmp_path / "prefill-graphs.jsonl").read_text().splitlines()]
    assert {(row["sms"], row["tokens"]) for row in rows} >= {(132, 16), (116, 8), (84, 16)}
    assert all(row["whole_ms"] > 0 for row in rows)
    assert "| overlay | 96 | 132 | 2 | - | - | - | - | - | the driver gave 88 SMs instead |" in done.stdout
    assert done.stdout.count("no time left") > 2 * len(rows)
