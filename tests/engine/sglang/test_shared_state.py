"""A model is not split where prefill and decode would write the same things at the same time."""

from types import SimpleNamespace

import pytest

from pdmuxd.engine.sglang.internals.shared_state import shared_by_streams

TENSOR = SimpleNamespace(data_ptr=lambda: 1)
PLAIN = {"moe_a2a_backend": "none", "enable_torch_compile": False, "cpu_offload_gb": 0}


def kind(name, **fields):
    return type(name, (), fields)()


def model(*layers):
    return SimpleNamespace(modules=lambda: layers)


def shared(*layers, attention=(), tp_size=1, **flags):
    return shared_by_streams(
        model(*layers), SimpleNamespace(**PLAIN | flags), attention=attention, tp_size=tp_size
    )


def test_nothing_is_shared_when_layers_hold_weights_alone():
    layer = kind("RowParallelLinear", weight=TENSOR, quant_method=kind("UnquantizedLinearMethod"))
    unset = kind("FusedMoE", workspace=None, quant_method=kind("Fp8MoEMethod"))
    assert shared(layer, unset, attention=[kind("FlashAttentionBackend")], tp_size=8) == ""


@pytest.mark.parametrize(
    ("layer", "says"),
    [
        (kind("QKVParallelLinear", workspace=TENSOR), "QKVParallelLinear keeps locks of Marlin"),
        (
            kind("Linear", quant_method=kind("GPTQ", kernel=kind("Marlin", workspace=TENSOR))),
            "Linear keeps locks of Marlin",
        ),
        (kind("Linear", scheme=kind("WNA16", workspace=TENSOR)), "Linear keeps locks of Marlin"),
        (kind("FusedMoE", quant_method=kind("W4AFp8", expert_offsets=TENSOR)), "offsets of experts"),
        (kind("QKVParallelLinearWithLoRA"), "which adapters a batch needs is kept once"),
        (kind("Llama4MoE"), "Llama4MoE: its experts run on a stream of their own"),
    ],
)
def test_the_layer_is_named_when_both_streams_would_write_what_it_keeps(layer, says):
    assert says in shared(kind("RMSNorm"), layer)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"moe_a2a_backend": "deepep"}, "--moe-a2a-backend deepep: the exchange of tokens"),
        ({"enable_torch_compile": True}, "--enable-torch-compile True: a compiled layer cannot pause"),
        ({"expert_distribution_recorder_mode": "stat"}, "--expert-distribution-recorder-mode stat"),
    ],
)
def test_the_flag_is_named_when_it_makes_something_for_one_forward_at_a_time(flags, says):
    assert says in shared(**flags)


def test_attention_is_named_when_its_backends_share_one_workspace():
    assert "TRTLLMMLABackend has one workspace" in shared(attention=[kind("TRTLLMMLABackend")])


def test_a_layer_with_its_own_communicator_is_named_when_several_gpus_share_the_model():
    assert shared(kind("MiniMaxM2Attention")) == ""
    assert "sums over one communicator" in shared(kind("MiniMaxM2Attention"), tp_size=2)


def test_a_layer_whose_parts_refer_to_each_other_is_looked_at_once():
    method = kind("Method")
    method.kernel = kind("Kernel")
    method.kernel.quant_method = method
    assert shared(kind("Linear", quant_method=method)) == ""
