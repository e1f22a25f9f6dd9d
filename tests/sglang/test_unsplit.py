"""Models that SGLang cannot prefill by layers, or not without other answers."""

import asyncio
from pathlib import Path

import made_up_weights
import pytest
import sglang_plugin
from sglang_processes import Link, OurServer, StockServer, ask_all, point, wrong_answers

from gpu_servers.model_folder import write_model_folder

DUMMY = ("--load-format", "dummy")
OLMO = {"architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2"}
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
NANBEIGE = {"architectures": ["NanbeigeForCausalLM"], "model_type": "nanbeige", "num_loops": 2}
UNSPLIT = {"auto": "auto:nosplit", "static:84,48": "auto:nosplit+fcfs+noclasses+nopreempt"}


@pytest.fixture(scope="module")
def variables(tmp_path_factory):
    file = Path(made_up_weights.__file__)
    return sglang_plugin.install(tmp_path_factory.mktemp("weights"), made_up_weights.NAME, file.stem, [file])


def folder_of(config, folder):
    return write_model_folder("tiny", folder / "tiny", torch_dtype="float32", **config)


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (OLMO, "SGLang has no layer-wise prefill for Olmo2ForCausalLM"),
        (GEMMA, "Gemma3ForCausalLM: SGLang's own split of it drops the residual and gives wrong tokens"),
    ],
    ids=["olmo2", "gemma3"],
)
def test_answers_are_stock_sglangs_when_the_model_is_not_split(
    python, variables, prompts, tmp_path, config, why
):
    asked = prompts.first(24)
    model = folder_of(config, tmp_path)
    (tmp_path / "stock").mkdir()
    with StockServer(python, model, tmp_path / "stock", flags=DUMMY, variables=variables) as stock:
        expected = asyncio.run(ask_all(stock.base_url, asked.without_aborts(), speed=4.0))
    assert len({tuple(answer) for answer in expected}) > 15, "a comparison of constants"
    with OurServer(python, model, tmp_path, flags=DUMMY, variables=variables) as ours:
        asyncio.run(_compare(ours, asked, expected, why))
    said = [line for line in ours.log.splitlines() if "tiny is not prefilled by layers" in line]
    assert [policy for line in said for policy in ("muxwise", *UNSPLIT) if f"policy {policy} " in line] == [
        "muxwise",
        *UNSPLIT,
    ]
    assert "may stop decode for a step" not in ours.log, "it was warmed up"


async def _compare(ours, asked, expected, why):
    async with Link(ours.link_address) as link:
        for policy, in_force in UNSPLIT.items():
            ack, _ = await link.set(policy)
            assert ack.error is None
            answers = await ask_all(ours.base_url, asked, speed=4.0)
            assert wrong_answers(asked, answers, expected) == {}
            assert (await link.idle()).policy == in_force
        assert (link.hello.unsplit, link.hello.partitions) == (why, ((132, 0), (0, 132)))
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


def test_a_class_starts_unsplit_when_its_own_split_is_an_assertion(python, tmp_path):
    with OurServer(python, folder_of(NANBEIGE, tmp_path), tmp_path, flags=DUMMY, policy="auto") as ours:
        said = [line for line in ours.log.splitlines() if "tiny is not prefilled by layers" in line]
    assert len(said) == 1
    assert "NanbeigeForCausalLM: SGLang's own split of it is an assertion that fails" in said[0]
