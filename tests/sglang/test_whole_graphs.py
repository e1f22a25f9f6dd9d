"""Which fused batches are captured whole, decided by the plugin inside a real SGLang on made-up runners."""

import json
import subprocess

import pytest

PROGRAM = """
import json
from types import SimpleNamespace as N
from sglang.srt.model_executor.cuda_graph_config import CudaGraphConfig, PhaseConfig
from pdmuxd.engine.sglang.internals import whole_graphs

class FlashAttentionBackend:
    fa_impl_ver, use_mla, has_local_attention, num_splits = 3, False, False, 0

class TritonAttnBackend(FlashAttentionBackend):
    pass

config = CudaGraphConfig(
    decode=PhaseConfig(backend="full", max_bs=MAX_BS), prefill=PhaseConfig(backend="BACKEND")
)
whole_graphs.get_exec = lambda: N(graph=N(cuda_graph_config=config))
attention = ATTENTION()
for name, value in CHANGES.items():
    setattr(attention, name, value)
model = N(is_multimodal=False, is_encoder_decoder=False)
runner = N(attn_backend=attention, model_config=model, sliding_window_size=WINDOW)
whole_graphs.choose_whole_graphs(runner)
seen = []
whole_graphs.capture_unsplit(lambda graphs: seen.append(attention.num_splits), N(model_runner=runner))
prefill = config.prefill
print(json.dumps([prefill.backend, prefill.full_prefill_max_req, seen, attention.num_splits]))
"""


PLAIN = {"MAX_BS": 128, "BACKEND": "breakable", "ATTENTION": "FlashAttentionBackend", "WINDOW": None}


def said(python, **given):
    program = PROGRAM
    for name, value in (PLAIN | {"CHANGES": {}} | given).items():
        program = program.replace(name, str(value))
    done = subprocess.run([python, "-P", "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_fused_batches_are_captured_whole_and_undivided_when_attention_is_plain(python):
    assert said(python) == ["full", 128 + 64, [1], 0]


def test_there_is_room_for_a_large_batch_when_nothing_says_how_large_decode_is(python):
    assert said(python, MAX_BS=None) == ["full", 256 + 64, [1], 0]


@pytest.mark.parametrize(
    "other",
    [
        {"ATTENTION": "TritonAttnBackend"},
        {"WINDOW": 4096},
        {"CHANGES": {"use_mla": True}},
        {"CHANGES": {"fa_impl_ver": 4}},
        {"CHANGES": {"has_local_attention": True}},
    ],
)
def test_segments_are_kept_when_attention_is_of_another_kind(python, other):
    assert said(python, **other) == ["breakable", None, [0], 0]


def test_nothing_is_captured_when_sglang_decided_so(python):
    assert said(python, BACKEND="disabled") == ["disabled", None, [0], 0]
