"""A number that policies add to a decision is written in three files, and is then in the console's value."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from shutil import copytree, ignore_patterns

ROOT = Path(__file__).parents[3]
WRITTEN = {
    "engine/core/types.py": "    tbt_slack_s: float | None = None\n",
    "engine/link/messages.py": "    tbt_target_s: float | None = None\n",
    "controlplane/events/messages.py": "    slack_min_ms: float | None\n",
}
FIELD = "    probe_ratio: float | None = None\n"
WALK = """
import sys
from pathlib import Path

import msgspec
from generate_client import console_values

from pdmuxd.controlplane.telemetry.decisions import SeenDecision, decision_event
from pdmuxd.engine.core.types import Decision, DecisionNumbers, DecodeShape, Mode, Reason
from pdmuxd.engine.link.messages import IterationRecord
from pdmuxd.engine.loop.decode import Step, StepTiming
from pdmuxd.engine.loop.records import step_record

numbers = DecisionNumbers(probe_ratio=1.5)
step = Step(
    launched=None,
    decision=Decision(mode=Mode.DECODE, partition_id=0, reason=Reason.DECODE_ALONE, numbers=numbers),
    prefill_sms=0,
    decode_sms=132,
    decode=DecodeShape(bs=1, reused_tokens=1),
    previous_end=None,
)
record = step_record(step, number=1, now_s=1.0, timing=StepTiming(gap_s=0.01, busy_s=0.01))
sent = msgspec.json.decode(msgspec.json.encode(record), type=IterationRecord)
event = decision_event([SeenDecision(seq=1, at_s=1.0, record=sent)])
Path(sys.argv[1], "made.py").write_text("\\n".join(console_values()))
sys.path.append(sys.argv[1])
from made import DecisionEvent

print(msgspec.json.decode(event.encoded(), type=DecisionEvent).probe_ratio)
"""


def test_a_new_number_of_a_decision_reaches_the_console_when_three_files_name_it(tmp_path: Path) -> None:
    product = tmp_path / "pdmuxd"
    for folder in ("controlplane", "engine", "migrations", "tui"):
        copytree(ROOT / folder, product / folder, ignore=ignore_patterns("__pycache__", "*.json*", "assets"))
    for name, after in WRITTEN.items():
        text = (product / name).read_text()
        assert text.count(after) == 1, name
        (product / name).write_text(text.replace(after, after + FIELD))
    walked = subprocess.run(
        [sys.executable, "-c", WALK, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": f"{tmp_path}:{ROOT / 'tests' / 'support'}"},
    )
    assert walked.stdout == "1.5\n", walked.stderr
    assert len(WRITTEN) == 3
