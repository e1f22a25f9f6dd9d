"""Which communicator prefill's sums go over, decided inside a real SGLang on made-up groups."""

import pytest
from sglang_programs import said_by

PROGRAM = """
import contextlib, json
from types import SimpleNamespace as N
from sglang.srt.distributed import parallel_state
from sglang.srt.runtime_context import get_parallel
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.internals.collectives import GROUPS, PrefillCollectives

def names(ranks, **others):
    parallel = get_parallel()
    group = lambda name, size=ranks: N(name=name, world_size=size)
    decode = group("decode")
    made = {name: decode for name in ("tp_group", "attn_tp_group", "moe_tp_group")}
    made["attn_cp_group"] = group("one", 1)
    made |= {name: group(name, size) for name, size in others.items()}
    parallel.clear_stamp()
    parallel.override_permanently(tp_size=ranks, **made)
    parallel_state._PDMUX_PREFILL_TP_GROUP = group("prefill")
    try:
        collectives = PrefillCollectives()
    except EngineError as error:
        return str(error)
    look = lambda: {name: getattr(parallel, name).name for name in made}
    with collectives.in_force():
        inside = look()
    return [inside, look()]

print(json.dumps([names(2), names(1), names(2, moe_ep_group=2)]))
"""


@pytest.fixture(scope="module")
def said(python):
    return said_by(python, PROGRAM)


DECODES = {"tp_group": "decode", "attn_tp_group": "decode", "moe_tp_group": "decode", "attn_cp_group": "one"}


def test_prefill_has_its_own_communicator_under_every_name_of_decodes(said):
    inside, outside = said[0]
    assert outside == DECODES
    assert inside == {name: "prefill" if whose == "decode" else whose for name, whose in DECODES.items()}


def test_nothing_is_replaced_when_there_is_one_rank(said):
    assert said[1] == [DECODES, DECODES]


def test_a_group_that_has_no_second_communicator_is_refused_by_name(said):
    assert "moe_ep_group is of 2 ranks" in said[2]
