"""What is read of SGLang's queues, by the plugin inside a real SGLang on made-up batches."""

from sglang_programs import said_by

PROGRAM = """
import json
from types import SimpleNamespace as N
import torch
from pdmuxd.engine.sglang.internals.state import SchedulerState

batch = N(reqs=["a", "b", "c"], seq_lens_cpu=torch.tensor([10, 700, 30]))
batch.is_empty = lambda: not batch.reqs
state = SchedulerState(N(running_batch=batch))
seen = {}

def look(name):
    shape = state.decode_shape()
    seen[name] = [shape.bs, shape.reused_tokens, shape.max_context_tokens]

look("at first")
batch.seq_lens_cpu = batch.seq_lens_cpu + 1
look("a step later")
batch.seq_lens_cpu += 1
look("counted up in place")
batch.reqs, batch.seq_lens_cpu = ["a", "c"], batch.seq_lens_cpu[torch.tensor([0, 2])]
look("one has ended")
batch.reqs, batch.seq_lens_cpu = [], torch.empty(0, dtype=torch.int64)
look("none is left")
print(json.dumps(seen))
"""


def test_the_decode_batch_is_summed_up_anew_whenever_its_lengths_change(python):
    assert said_by(python, PROGRAM) == {
        "at first": [3, 740, 700],
        "a step later": [3, 743, 701],
        "counted up in place": [3, 746, 702],
        "one has ended": [2, 44, 32],
        "none is left": [0, 0, 0],
    }
