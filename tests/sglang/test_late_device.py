"""What only happens where the device is behind the host: prefills launched behind each other."""

import late_device
import pytest
from changing_policies import ask_while_policies_change
from sglang_processes import OurServer, wrong_answers

POLICIES = ("muxwise", "auto", "static:84,48")


@pytest.fixture(scope="module")
def late(python, model, late_device_variables, tmp_path_factory):
    folder = tmp_path_factory.mktemp("late")
    with OurServer(python, model, folder, variables=late_device_variables) as server:
        yield server


async def test_greedy_tokens_are_stock_sglangs_when_prefills_follow_each_other(late, prompts, stock):
    answers, _ = await ask_while_policies_change(late, prompts, POLICIES)
    assert wrong_answers(prompts, answers, stock.answers) == {}
    assert late.log.count(late_device.SAYS) > 3  # busy cores have fewer: 9 at a load of 7
