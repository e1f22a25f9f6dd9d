"""Prompts whose activations memory does not hold whole: chunks in fused steps, whatever the policy."""

from pathlib import Path

import pytest
import sglang_plugin
import small_memory
from changing_policies import ask_while_policies_change
from sglang_processes import OurServer, wrong_answers
from sglang_programs import said_by

WARM_UP = """
import json, torch
from types import SimpleNamespace as N
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.internals import measuring, warming

sglang()  # looks for a GPU itself when it is imported: before one is made up here
bytes_taken, peak, launched = 1000, 0, []

def reset():
    global peak
    peak = bytes_taken

def layers(batch, count, stream):
    global peak
    launched.append((*batch, count))
    peak = max(peak, bytes_taken + 5000 + 2 * sum(new for new, _ in batch))
    return None, None

torch.cuda.is_available = lambda: True
torch.cuda.mem_get_info = lambda: (FREE, 10**9)
torch.cuda.memory_allocated = lambda: bytes_taken
torch.cuda.reset_peak_memory_stats, torch.cuda.max_memory_allocated = reset, lambda: peak
warming._PINNED_BYTES = ()
first, last = N(prefill_sms=132, decode_sms=0, prefill="p"), N(prefill_sms=0, decode_sms=132, decode="d")
port = N(state=N(layers=4, tp_size=1), stream_group=0, use_group=print, forget_prefill_metadata=print)
port.gather = lambda own: [own, OTHERS] if type(own) is int else [own]
port.activation_memory = N(bytes_per_token=0.0)
streams = N(groups=[first, last], wait=print, mark=print)
table = N(rules=N(total_sms=132))
made = measuring.EngineMeasurer(N(device="cpu"), port, streams, table, None, can_split=True)
class Batch(tuple):
    split_forward_batch = None

made._batches = N(empty_cache=print, split_prefill=Batch, mixed=print)
made._layers, made._step = layers, lambda batch, stream: (None, None)
made.warm_up(lambda member: None)
print(json.dumps([made.activations.max_whole_tokens, launched]))
"""
PRODUCTS = """
import json, torch
from types import SimpleNamespace as N
from pdmuxd.engine.sglang.internals import warming

class Layer:
    weight = torch.zeros(40, 60, dtype=torch.bfloat16)
    input_size, output_size, params_dtype, quant_method = 60, 40, torch.bfloat16, N(apply=print)

warming.sglang = lambda: N(Linear=Layer)
model = N(modules=lambda: [Layer(), Layer()], lm_head=None)
print(json.dumps([[one.most_rows for one in warming._products(model, free)] for free in FREE]))
"""
IMAGES = """
import json
from array import array
from types import SimpleNamespace as N
from sglang.srt.configs.model_config import is_multimodal_chunked_prefill_supported as is_cut
from pdmuxd.engine.sglang.api.symbols import sglang
from pdmuxd.engine.sglang.internals import images, taking_in

taken, told, let_go = [], {}, []
params = sglang().SamplingParams(temperature=0.0, max_new_tokens=4, ignore_eos=True)
params.normalize(None)
sender = N(send_output=lambda end, request: told.update({request.rid: end.finished_reason}))
runner = N(model=object(), attn_backend=object())
for name in ("LlavaLlamaForCausalLM", "Qwen3VLForConditionalGeneration"):
    config = N(is_multimodal=True, is_multimodal_chunked_prefill_supported=is_cut([name]))
    s = N(model_config=config, tp_worker=N(model_runner=runner), ipc_channels=N(send_to_tokenizer=sender))
    s._release_aborted_request = lambda request: let_go.append(request.rid)
    whole = images.WholePrompts()
    whole.why, whole.most_tokens = images.why_whole(s), 100
    asked = ((101, N(), False), (100, N(), False), (101, None, False), (101, N(), True))
    for tokens, images_of, is_retracted in asked:
        rid = f"{name[:5]}-{tokens}-{images_of is not None}-{is_retracted}"
        request = sglang().Request(rid, "", array("q", [1] * tokens), params, vocab_size=512)
        request.multimodal_inputs = images_of
        original = lambda s, request, is_retracted: taken.append(request.rid)
        taking_in.queue(original, s, request, is_retracted, whole=whole)
print(json.dumps([taken, told, let_go]))
"""
POLICIES = ("muxwise", "auto", "static:84,48")


def warmed_up(python, *, free, others=10**9):
    """`others`: new tokens that the memory of another rank holds."""
    program = WARM_UP.replace("FREE", str(free)).replace("OTHERS", str(others))
    return said_by(python, program)


def test_what_memory_holds_is_measured_with_the_largest_prefill_of_the_warm_up(python):
    most, launched = warmed_up(python, free=8192 * 100)
    assert most == int(0.8 * 8192 * 100 / (2 + 5000 / 8192))
    lone = [(new, count) for (new, reused), count, *more in launched if not more and not reused]
    assert lone[0] == (8192, 4)
    assert {new % 16 for new, _ in lone} >= {0, 15, 14, 12, 8}, "what 16 divides has kernels of its own"
    assert lone[-4:] == [(12287, 1), (16382, 1), (24572, 1), (32760, 1)]


def test_prompts_that_memory_does_not_hold_are_not_prefilled_when_the_engine_warms_up(python):
    most, launched = warmed_up(python, free=20_000 * (2 + 5000 / 8192) / 0.8)
    assert most == 20_000
    assert max(batch[0][0] for batch in launched) == 16_382


def test_all_ranks_warm_up_with_the_prompts_that_each_of_them_holds(python):
    _, launched = warmed_up(python, free=8192 * 100, others=13_000)
    assert max(batch[0][0] for batch in launched) == 12_287


def test_products_have_the_rows_of_a_long_prompt_where_memory_holds_them(python):
    bytes_of_a_row = 2 * (60 + 40)
    program = PRODUCTS.replace("FREE", str([2 * bytes_of_a_row * rows for rows in (100, 20_000, 10**6)]))
    assert said_by(python, program) == [[8192], [20_000], [32_768]]


@pytest.fixture(scope="module")
def small(python, model, tmp_path_factory):
    plugin, file = tmp_path_factory.mktemp("plugin"), Path(small_memory.__file__)
    variables = sglang_plugin.install(plugin, small_memory.NAME, file.stem, [file])
    with OurServer(python, model, tmp_path_factory.mktemp("small"), variables=variables) as server:
        yield server


async def test_greedy_tokens_are_stock_sglangs_when_prompts_are_too_long_for_memory(small, prompts, stock):
    some = prompts.first(100)
    answers, reasons = await ask_while_policies_change(small, some, POLICIES)
    assert wrong_answers(some, answers, stock.answers[:100]) == {}
    assert f"prompts of more than {small_memory.WHOLE_TOKENS} new tokens are prefilled in chunks" in small.log
    assert reasons["too_long_for_memory"] > 10
    assert reasons["best_fit"] > 10


def test_images_that_cannot_be_cut_are_refused_when_memory_does_not_hold_them_whole(python):
    taken, told, let_go = said_by(python, IMAGES)
    assert taken[:3] == ["Llava-100-True-False", "Llava-101-False-False", "Llava-101-True-True"]
    assert len(taken[3:]) == 4, "of a class whose images are cut"
    assert list(told) == let_go == ["Llava-101-True-False"]
    reason = told["Llava-101-True-False"]
    assert (reason["type"], reason["status_code"]) == ("abort", 400)
    assert reason["message"].startswith("the prompt has 101 tokens with its images, and memory holds 100")
