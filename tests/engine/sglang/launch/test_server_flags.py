"""SGLang's command line."""

import itertools

import pytest
from engine_rig import RULES

from pdmuxd.engine.sglang.environment import PluginEnvironment
from pdmuxd.engine.sglang.launch import memory
from pdmuxd.engine.sglang.launch.arguments import parse
from pdmuxd.engine.sglang.launch.server import FUSED_TOKENS, plugin_environment, server_flags
from pdmuxd.engine.sglang.partition_tables import make_table


def flags(tmp_path, *extra, fraction=None):
    words = ["--model", "m", "--served-model", "m", "--port", "1", "--", *extra]
    return server_flags(parse(words), groups=4, groups_file=tmp_path / "groups", fraction=fraction)


def test_a_chosen_share_of_memory_comes_before_what_the_user_says(tmp_path):
    assert "--mem-fraction-static" not in flags(tmp_path)
    found = flags(tmp_path, "--trust-remote-code", fraction=0.831)
    assert found[-3:] == ["--mem-fraction-static", "0.831", "--trust-remote-code"]


def test_there_is_a_slot_for_each_adapter_and_one_for_none(tmp_path):
    assert "--max-loras-per-batch" not in flags(tmp_path)
    found = flags(tmp_path, "--lora-paths", "chat=/a", "docs=/b")
    assert found[found.index("--max-loras-per-batch") + 1] == "3"


def test_memory_is_kept_for_the_graphs_that_are_captured(tmp_path):
    assert len(FUSED_TOKENS) == memory.GRAPHS


def test_fused_batches_are_captured_in_sizes_that_are_close_together(tmp_path):
    found = flags(tmp_path)
    at = found.index("--cuda-graph-bs-prefill")
    assert found[at + 1 : at + 1 + len(FUSED_TOKENS)] == [str(tokens) for tokens in FUSED_TOKENS]
    pairs = [(small, large) for small, large in itertools.pairwise(FUSED_TOKENS) if small >= 128]
    assert all((large - small - 1) / large < 0.25 for small, large in pairs), "what a batch is padded with"


@pytest.mark.parametrize(
    "extra",
    [
        ("--disable-prefill-cuda-graph",),
        ("--cuda-graph-bs-prefill", "512"),
        ("--cuda-graph-max-bs-prefill=512",),
        ("--disable-cuda-graph",),
    ],
)
def test_a_users_own_graphs_are_left_alone(tmp_path, extra):
    found = flags(tmp_path, *extra)
    assert found[-len(extra) :] == list(extra)
    assert str(FUSED_TOKENS[-1]) not in found
    assert environment(*extra)["PDMUXD_WHOLE_GRAPHS"] == ""


def test_fused_batches_may_be_captured_whole_when_the_user_says_nothing_of_graphs():
    assert environment("--mem-fraction-static", "0.8")["PDMUXD_WHOLE_GRAPHS"] == "1"


def test_sums_of_two_communicators_are_launched_in_order_when_there_are_several_gpus(monkeypatch):
    monkeypatch.delenv("NCCL_LAUNCH_ORDER_IMPLICIT", raising=False)
    assert "NCCL_LAUNCH_ORDER_IMPLICIT" not in environment()
    assert environment(tp_size=2)["NCCL_LAUNCH_ORDER_IMPLICIT"] == "1"
    monkeypatch.setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0")
    assert environment(tp_size=2)["NCCL_LAUNCH_ORDER_IMPLICIT"] == "0"


def test_deep_gemms_products_are_tried_for_few_numbers_of_rows_unless_the_operator_wants_all(monkeypatch):
    monkeypatch.delenv("SGLANG_JIT_DEEPGEMM_FAST_WARMUP", raising=False)
    assert environment()["SGLANG_JIT_DEEPGEMM_FAST_WARMUP"] == "1"
    monkeypatch.setenv("SGLANG_JIT_DEEPGEMM_FAST_WARMUP", "0")
    assert environment()["SGLANG_JIT_DEEPGEMM_FAST_WARMUP"] == "0"


def environment(*extra, tp_size=1):
    words = ["--model", "m", "--served-model", "m", "--port", "1", "--tp-size", str(tp_size), "--", *extra]
    table = make_table(RULES, PluginEnvironment(policy="auto", link=None, partitions=None))
    return plugin_environment(parse(words), table)


def test_every_batch_has_a_graph_of_at_most_twice_its_size():
    """SGLang replays no graph that would more than double a batch."""
    for tokens in range(1, FUSED_TOKENS[-1] + 1):
        assert min(size for size in FUSED_TOKENS if size >= tokens) <= 2 * tokens
