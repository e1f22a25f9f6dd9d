"""Which fused batches are captured whole, decided by the plugin inside a real SGLang on made-up runners."""

import pytest
from sglang_programs import said_by

PROGRAM = """
import json
from types import SimpleNamespace as N
from sglang.srt.model_executor.cuda_graph_config import CudaGraphConfig, PhaseConfig
from pdmuxd.engine.sglang.internals import whole_graphs

class FlashAttentionBackend:
    pass

class TritonAttnBackend:
    pass

PLAIN = {"fa_impl_ver": 3, "use_mla": False, "has_local_attention": False, "num_splits": 0}

def captured(backend="breakable", max_bs=128, kind="FlashAttentionBackend", window=None, **changes):
    decode = PhaseConfig(backend="full", max_bs=max_bs)
    config = CudaGraphConfig(decode=decode, prefill=PhaseConfig(backend=backend))
    whole_graphs.graphs_in_force = lambda: config
    attention = globals()[kind]()
    vars(attention).update(PLAIN | changes)
    model = N(is_multimodal=False, is_encoder_decoder=False)
    runner = N(attn_backend=attention, model_config=model, sliding_window_size=window)
    whole_graphs.choose_whole_graphs(runner)
    seen = []
    whole_graphs.capture_unsplit(lambda graphs: seen.append(attention.num_splits), N(model_runner=runner))
    return [config.prefill.backend, config.prefill.full_prefill_max_req, seen, attention.num_splits]

print(json.dumps({name: captured(**given) for name, given in CASES.items()}))
"""

OTHER = {
    "another backend": {"kind": "TritonAttnBackend"},
    "a window": {"window": 4096},
    "MLA": {"use_mla": True},
    "FlashAttention 4": {"fa_impl_ver": 4},
    "local attention": {"has_local_attention": True},
}
CASES = OTHER | {"plain": {}, "no size": {"max_bs": None}, "disabled": {"backend": "disabled"}}


@pytest.fixture(scope="module")
def said(python):
    program = PROGRAM.replace("CASES", repr(CASES))
    return said_by(python, program)


def test_fused_batches_are_captured_whole_and_undivided_when_attention_is_plain(said):
    assert said["plain"] == ["full", 128 + 64, [1], 0]


def test_there_is_room_for_a_large_batch_when_nothing_says_how_large_decode_is(said):
    assert said["no size"] == ["full", 256 + 64, [1], 0]


@pytest.mark.parametrize("other", OTHER)
def test_segments_are_kept_when_attention_is_of_another_kind(said, other):
    assert said[other] == ["breakable", None, [0], 0]


def test_nothing_is_captured_when_sglang_decided_so(said):
    assert said["disabled"] == ["disabled", None, [0], 0]
