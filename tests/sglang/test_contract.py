"""What the plugin and the launcher take for granted of SGLang, asked of the SGLang that is installed."""

import json
import subprocess

from pdmuxd.engine.sglang.launch.flags import REFUSED

BROKEN = """
import json
from pdmuxd.engine.sglang.internals.contract import broken, check_version
print(json.dumps({"version": check_version(), "broken": list(broken())}))
"""
DEFAULTS = """
import json
from sglang.srt.server_args import prepare_server_args
args = prepare_server_args(["--model-path", "x"])
print(json.dumps({name: getattr(args, name) for name in NAMES if hasattr(args, name)}))
"""


def said_by(python, program):
    done = subprocess.run([python, "-P", "-c", program], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


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
