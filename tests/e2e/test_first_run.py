"""What `make serve` does, twice in a row, in a folder with a space."""

import os
import shlex
import stat
import subprocess
import sys


def paste(daemon, *, key=None):
    """Run the printed line in a shell, as somebody who has the key would."""
    environ = os.environ | ({"PDMUXD_API_KEY": key} if key else {})
    ended = subprocess.run(
        ["sh", "-c", daemon.curl], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    return ended.stdout


def test_the_printed_line_works_on_the_first_run_and_on_the_second(start, folder):
    first = start()
    assert first.key.startswith("pdm_")
    assert first.key in first.curl
    assert paste(first).rstrip().endswith("data: [DONE]")
    token_file = folder / ".pdmuxd" / "admin-token"
    assert stat.S_IMODE(token_file.stat().st_mode) == 0o600
    assert str(token_file) in first.output
    (export,) = (line.strip() for line in first.output.splitlines() if line.strip().startswith("export "))
    status = f"{shlex.quote(sys.executable)} -m pdmuxd.daemon.cli.main status"
    asked = ["sh", "-c", f"unset PDMUXD_STATE_DIR; {export}; exec {status}"]
    assert "in flight" in subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert first.stop() == 0

    second = start(key=first.key)
    assert "pdm_" not in second.output
    assert "tenant key issue default" in second.output
    assert paste(second, key=first.key).rstrip().endswith("data: [DONE]")
    assert first.key not in second.log
    assert second.stop() == 0
