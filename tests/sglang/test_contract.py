"""What the plugin and the launcher take for granted of SGLang, asked of the SGLang that is installed."""

import subprocess

from sglang_programs import said_by

from pdmuxd.engine.sglang.launch.flags import REFUSED

BROKEN = """
import json
from pdmuxd.engine.sglang.api.symbols import broken, installed_version
print(json.dumps({"version": installed_version(), "broken": broken()}))
"""
CHANGED = """
import os, sys
from sglang.srt.managers.schedule_batch import ScheduleBatch
from sglang.srt.managers.scheduler import Scheduler
from pdmuxd.engine.sglang.plugin import register

del Scheduler.ingest_requests
ScheduleBatch.merge_batch = lambda self, other, device: None
os.environ["PDMUXD_POLICY"] = "auto"
register()
"""
OBJECT = """
import json
from types import SimpleNamespace
from pdmuxd.engine.core.errors import EngineError
from pdmuxd.engine.sglang.api.symbols import check_scheduler
try:
    check_scheduler(SimpleNamespace(chunked_req=None, tp_size="two"))
except EngineError as error:
    print(json.dumps(str(error)))
"""
DEFAULTS = """
import json
from sglang.srt.server_args import prepare_server_args
args = prepare_server_args(["--model-path", "x"])
print(json.dumps({name: getattr(args, name) for name in NAMES if hasattr(args, name)}))
"""


def test_every_name_and_signature_is_there_when_the_plugin_needs_it(python):
    said = said_by(python, BROKEN)
    assert said["version"]
    assert said["broken"] == []


def test_every_refused_flag_exists_and_defaults_to_harmless(python):
    # `config` is a flag of the command line alone.
    names = sorted(REFUSED.keys() - {"config"})
    defaults = said_by(python, DEFAULTS.replace("NAMES", repr(names)))
    assert sorted(defaults) == names
    wrong = {n: defaults[n] for n in names if REFUSED[n].harmless and defaults[n] not in REFUSED[n].harmless}
    assert wrong == {}


def test_a_start_ends_with_one_line_and_exit_code_2_when_names_or_parameters_have_changed(python):
    done = subprocess.run([python, "-P", "-c", CHANGED], capture_output=True, text=True, timeout=300)
    assert done.returncode == 2, done.stderr
    (said,) = (line for line in done.stderr.splitlines() if line.startswith("pdmuxd plugin: "))
    assert "is not as pdmuxd needs it (supported are " in said
    assert "): Scheduler.ingest_requests is missing; " in said
    assert "ScheduleBatch.merge_batch(self, other, device) is called as merge_batch(other): " in said
    assert "Traceback" not in done.stderr


def test_a_scheduler_whose_members_have_changed_is_refused_by_name(python):
    said = said_by(python, OBJECT)
    assert "is not as pdmuxd needs it (supported are " in said
    assert "): Scheduler." in said
    assert said.count("\n") == 0
