"""Families of models beside Llama on the real engine: by layers where that can be, else in fused steps."""

import asyncio
from pathlib import Path

import made_up_weights
import pytest
import sglang_plugin
from changing_policies import ask_by_layers, ask_under_each, varied_answers
from sglang_processes import Link, OurServer, StockServer, ask_all, point

from gpu_servers.model_folder import write_model_folder

DUMMY = ("--load-format", "dummy")
OLMO = {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"}
MIXTRAL = {
    "architectures": ["MixtralForCausalLM"],
    "model_type": "mixtral",
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
GEMMA = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "query_pre_attn_scalar": 64,
    "sliding_window": 64,
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_local_base_freq": 10000.0,
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "tie_word_embeddings": True,
}
UNSPLIT = {"auto": "auto:nosplit", "static:84,48": "auto:nosplit+fcfs+noclasses+nopreempt"}
WHY = "keeps locks of Marlin or a workspace of CUTLASS, which both streams would write"


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    folder, file = tmp_path_factory.mktemp("weights"), Path(made_up_weights.__file__)
    return sglang_plugin.install(folder, made_up_weights.NAME, file.stem, [file])


def stock_answers(python, config, folder, asked, variables):
    model = write_model_folder("tiny", folder / "tiny", torch_dtype="float32", **config)
    (folder / "stock").mkdir()
    with StockServer(python, model, folder / "stock", flags=DUMMY, variables=variables) as stock:
        return model, varied_answers(stock, asked)


@pytest.mark.parametrize("config", [GEMMA, MIXTRAL], ids=["gemma3", "mixtral"])
def test_answers_are_stock_sglangs_when_any_class_is_prefilled_by_layers(
    python, variables, prompts, tmp_path, config
):
    asked = prompts.first(24)
    model, expected = stock_answers(python, config, tmp_path, asked, variables)
    with OurServer(python, model, tmp_path, flags=DUMMY, variables=variables) as ours:
        modes = asyncio.run(ask_by_layers(ours, asked, expected))
    assert modes["split"] > 20
    assert "prefills pause between the model's 4 layers" in ours.log


def test_answers_are_stock_sglangs_when_streams_would_share_a_workspace(python, variables, prompts, tmp_path):
    asked = prompts.first(24)
    model, expected = stock_answers(python, OLMO, tmp_path, asked, variables)
    shared = dict(variables) | {made_up_weights.WORKSPACE: "1"}
    with OurServer(python, model, tmp_path, flags=DUMMY, variables=shared) as ours:
        asyncio.run(_unsplit(ours, asked, expected))
    said = [line for line in ours.log.splitlines() if "tiny is not prefilled by layers" in line]
    asked_for = ("muxwise", *UNSPLIT)
    assert [one for line in said for one in asked_for if f"policy {one} " in line] == [*asked_for]
    assert "may stop decode for a step" not in ours.log, "it was warmed up"


async def test_a_workspace_of_a_name_that_nobody_knows_is_found_when_both_streams_write_it(
    python, variables, prompts, tmp_path
):
    model = write_model_folder("tiny", tmp_path / "tiny", torch_dtype="float32", **OLMO)
    shared = dict(variables) | {made_up_weights.SCRATCH: "1"}
    with OurServer(python, model, tmp_path, policy="auto", flags=DUMMY, variables=shared) as ours:
        async with Link(ours.link_address) as link:
            await ask_all(ours.base_url, prompts.first(4), speed=4.0)
            assert (await link.idle()).policy == "auto:nosplit"
            assert link.hello.unsplit.startswith("products_room of QKVParallelLinear is written by prefill")


async def _unsplit(ours, asked, expected):
    async with Link(ours.link_address) as link:
        await ask_under_each(link, ours, asked, expected, UNSPLIT)
        assert WHY in link.hello.unsplit
        assert link.hello.partitions == ((132, 0), (0, 132))
        await _measured(link)


async def _measured(link):
    """All but pairs of prefill and decode, which it never runs."""
    prefill = await link.measure(point("prefill", prefill_sms=132, prefill=((128, 300), (64, 0))))
    assert (prefill.error, len(prefill.prefill_s)) == (None, 2)
    fused = await link.measure(
        point("fused", prefill_sms=132, decode_sms=132, prefill=((64, 100),), decode=(100,) * 8)
    )
    assert (fused.error, len(fused.decode_s)) == (None, 2)
    decode = await link.measure(point("decode", decode_sms=132, decode=(100,) * 8))
    assert (decode.error, len(decode.decode_s)) == (None, 2)
    pair = point("colocated", prefill_sms=100, decode_sms=32, prefill=((256, 0),), decode=(100,) * 8)
    assert "not split" in ((await link.measure(pair)).error or "")
    split = await link.measure(point("prefill", prefill_sms=100, prefill=((64, 0),)))
    assert "no partition group has these SMs" in (split.error or "")
