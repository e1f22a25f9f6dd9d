"""Where `triton_kernels` chooses experts, one compilation of its kernels serves batches of any length."""

from sglang_programs import said_by

PROGRAM = """
import json
import torch
from pdmuxd.engine.sglang.internals import expert_bits

assert not expert_bits.keep_apart()  # a model without these experts

import triton_kernels.topk as chosen

LENGTHS = (5, 70, 700)
kernel, distances = chosen._topk_forward, []


class Launches:
    def __getitem__(self, grid):
        def launch(*given, **named):
            distances.append(given[8])
            return kernel[grid](*given, **named)

        return launch


def experts_of(tokens):
    torch.manual_seed(tokens)
    said = chosen.topk(torch.randn(tokens, 32).to(torch.bfloat16), 4)
    bits = said.mask_metadata
    return said.vals, said.indx, bits.col_sum, bits.row_sorted_indx, bits.col_sorted_indx


chosen._topk_forward = Launches()
before = [experts_of(tokens) for tokens in LENGTHS]
assert expert_bits.keep_apart() and expert_bits.keep_apart()
after = [experts_of(tokens) for tokens in LENGTHS]
equal = [torch.equal(a, b) for one, other in zip(before, after) for a, b in zip(one, other)]
made = chosen.make_empty(0, (1, 70_000), torch.uint32, "cpu", all_gather=False, symm_mem_pool=None)[1]
print(json.dumps({"distances": distances, "equal": equal, "long": list(made.shape)}))
"""


def test_batches_of_all_lengths_ask_for_the_same_kernel_and_get_the_same_experts(python):
    said = said_by(python, PROGRAM, variables={"TRITON_INTERPRET": "1"})

    assert said["distances"] == [32, 96, 704, 65_536, 65_536, 65_536]
    assert len(said["equal"]) == 15
    assert all(said["equal"])
    assert said["long"] == [1, 131_072]


CHANGED = """
import json
import triton_kernels.topk as chosen
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.internals import expert_bits

chosen.make_empty = lambda shape, dtype, device: None
try:
    expert_bits.keep_apart()
except EngineError as error:
    print(json.dumps(str(error)))
"""


def test_a_changed_name_is_refused_by_name(python):
    said = said_by(python, CHANGED)
    assert (
        "): make_empty(shape, dtype, device) is called as make_empty(offset, shape, dtype, device, " in said
    )
