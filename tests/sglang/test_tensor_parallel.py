"""Two ranks on the CPU, under aborts and policy switches, with prefixes evicted all the time and a device
that is behind the host.

Ranks whose prefix caches differ form batches of different sizes and end; on GPUs, so do ranks whose prefill
and decode sum over one communicator.
"""

import asyncio
import os
from pathlib import Path

import late_device
import sglang_plugin
import told_collectives
from sglang_processes import Link, OurServer, ask_all, wrong_answers

POLICIES = ("muxwise", "auto", "chunked:256", "static:80,52")
SMALL_POOL = ("--max-total-tokens", "3000")


async def test_greedy_tokens_are_stock_sglangs_when_two_ranks_serve(
    python, model, prompts, stock, late_device_variables, tmp_path
):
    asked, variables = prompts.first(60), both(late_device_variables, told(tmp_path))
    with OurServer(python, model, tmp_path, tp_size=2, flags=SMALL_POOL, variables=variables) as server:
        async with Link(server.link_address) as link:
            async with link.changing(POLICIES, every_s=1.0), asyncio.timeout(300):
                answers = await ask_all(server.base_url, asked)
            stats = await link.idle()
            assert stats.settings_version > len(POLICIES)
            assert stats.kv_used_tokens == 0
            assert link.hello.can_measure is False
        assert wrong_answers(asked, answers, stock.answers[: len(answers)]) == {}
        assert "leak" not in server.log
        assert server.log.count(late_device.SAYS) > 2, "on two ranks"
        groups = {(stage, name) for stage in STAGES for name in GROUPS if says(stage, name) in server.log}
        assert groups == {("prefill layers", "pdmux_prefill_tp:0"), ("the rest", "tp:0")}


STAGES, GROUPS = ("prefill layers", "the rest"), ("pdmux_prefill_tp:0", "tp:0")


def says(stage, group):
    return told_collectives.SAYS.format(stage=stage, group=group)


def told(folder):
    """The environment of a server that says which communicator it sums over."""
    plugins, file = folder / "told-collectives", Path(told_collectives.__file__)
    plugins.mkdir()
    return sglang_plugin.install(plugins, told_collectives.NAME, file.stem, [file])


def both(one, other):
    """The environment of a server that loads two plugins."""
    separators = {"SGLANG_PLUGINS": ",", "PYTHONPATH": os.pathsep}
    return {name: separator.join((one[name], other[name])) for name, separator in separators.items()}
