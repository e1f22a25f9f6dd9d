"""SGLang's command line."""

import itertools

import pytest

from pdmuxd.engine.sglang.launch.arguments import parse
from pdmuxd.engine.sglang.launch.server import FUSED_TOKENS, server_flags


def flags(tmp_path, *extra):
    words = ["--model", "m", "--served-model", "m", "--port", "1", "--", *extra]
    return server_flags(parse(words), groups=4, groups_file=tmp_path / "groups")


def test_fused_batches_are_captured_in_sizes_that_are_close_together(tmp_path):
    found = flags(tmp_path)
    at = found.index("--cuda-graph-bs-prefill")
    assert found[at + 1 : at + 1 + len(FUSED_TOKENS)] == [str(tokens) for tokens in FUSED_TOKENS]
    pairs = [(small, large) for small, large in itertools.pairwise(FUSED_TOKENS) if small >= 128]
    assert all((large - small - 1) / large < 0.2 for small, large in pairs), "what a batch is padded with"


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
    assert str(FUSED_TOKENS[0]) not in found
