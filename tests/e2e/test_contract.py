"""Drawn requests through a whole daemon: the engine stays, and every refusal names its field."""

import asyncio
import os

import pytest
from contract_fuzz import EMULATED, NOT_EMULATED, run


@pytest.mark.parametrize("seed", [int(os.environ.get("CONTRACT_SEED", "1"))])
def test_every_answer_is_one_that_the_contract_knows_when_fields_are_at_and_beyond_their_ranges(daemon, seed):
    """`python tests/lab contract-fuzz` sends more of them, and to a real SGLang."""
    before = daemon.engine()["pid"]
    outcome = asyncio.run(
        run(daemon, EMULATED, count=400, seed=seed, at_once=8, limit_s=50, missing=NOT_EMULATED)
    )
    assert (outcome.broken, dict(outcome.unnamed)) == ([], {})
    assert sum(outcome.statuses.values()) == 400
    assert daemon.engine()["pid"] == before
