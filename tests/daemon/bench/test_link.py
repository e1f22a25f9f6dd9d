"""What is kept of an engine's reports."""

import contextlib
import gzip

import msgspec

from pdmuxd.daemon.bench.servers.link import Link
from pdmuxd.engine.core.observing import NOTHING_HIDDEN
from pdmuxd.engine.link.messages import EngineStats, IterationRecord

STATS = EngineStats(
    **dict.fromkeys(EngineStats.__struct_fields__, 0)
    | {"policy": "auto", "shadow": None, "hidden": NOTHING_HIDDEN}
)
RECORD = IterationRecord(
    **{field.name: 0 for field in msgspec.structs.fields(IterationRecord) if field.required}
    | {"mode": "split", "reason": "best_fit", "measured_step_s": 0.03, "predicted_decode_s": 0.02}
)


class End:
    """Messages that an engine sent, and then nothing more."""

    def __init__(self, *messages):
        self._messages = list(messages)

    async def receive(self):
        return self._messages.pop(0)


async def report(*messages):
    link = Link(End(*messages))
    try:
        await link.read()
    except IndexError:
        return link.report()


async def test_fused_and_decode_predictions_are_judged_apart():
    fused = msgspec.structs.replace(RECORD, mode="fused", predicted_decode_s=None, predicted_fused_s=0.025)
    alone = msgspec.structs.replace(RECORD, mode="fused", predicted_decode_s=None)
    told = await report(RECORD, RECORD, fused, fused, alone)
    assert told["split_over_predicted"][50] == 1.5
    assert told["fused_over_predicted"][50] == 1.2


async def test_the_clock_counts_only_while_requests_decode():
    idle = msgspec.structs.replace(STATS, running=0, gpu_clock_mhz=345, gpu_power_w=90.0)
    busy = msgspec.structs.replace(STATS, running=3, gpu_clock_mhz=1500, gpu_power_w=690.0)
    told = await report(idle, busy, busy, idle)
    assert told["gpu_clock_mhz"][1] == told["gpu_clock_mhz"][99] == 1500
    assert told["gpu_power_w"][50] == 690.0


async def test_nothing_is_told_of_a_gpu_that_says_nothing():
    silent = msgspec.structs.replace(STATS, running=3, gpu_clock_mhz=None, gpu_power_w=None)
    assert "gpu_clock_mhz" not in await report(silent, silent)


async def test_steps_that_the_host_delayed_are_counted_of_those_behind_another():
    late, quick, first = (msgspec.structs.replace(RECORD, host_late_s=s) for s in (0.006, 0.0, None))
    told = await report(first, late, quick, quick, quick, msgspec.structs.replace(STATS, stalls=3))
    assert told["host"]["steps"] == 4
    assert (told["host"]["delayed_ratio"], told["host"]["time_ratio"]) == (0.25, 0.05)
    assert told["stalls_total"] == 3
    assert "host" not in await report(first)


async def test_every_step_is_kept_where_that_is_asked_for(tmp_path):
    link = Link(End(RECORD, STATS, RECORD))
    with contextlib.suppress(IndexError):
        await link.read()
    link.keep_records(None, "nowhere")
    link.keep_records(tmp_path / "steps", "ours:slack/chunked:1024-conv:20-1-50.0")
    (kept,) = (tmp_path / "steps").iterdir()
    lines = gzip.decompress(kept.read_bytes()).splitlines()
    assert [msgspec.json.decode(line)["measured_step_s"] for line in lines] == [0.03, 0.03]
