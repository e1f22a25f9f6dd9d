"""The commands of docs/gitops.md, as they stand there; its units, as systemd reads them."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from page_walks import walked

PAGE = Path(__file__).parents[2] / "docs" / "gitops.md"
LONGEST_S = 280


def test_its_commands_work_as_they_are_written(folder):
    script = "\n".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    given = {"PDMUXD_STATE_DIR": "state", "PDMUXD_ADMIN__PORT": "1"}
    code, shown = walked(script, folder, environ=given, longest_s=LONGEST_S)
    assert code == 0, shown
    assert shown.count("nothing differs (settings version 1)") == 2
    assert "~ change tenant chat: slo.tbt_ms 40 -> 30\n" in shown
    assert shown.count("config.apply") == 2


def test_systemd_takes_its_units(folder):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("needs systemd")
    units = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert [name for name, _ in units] == ["pdmuxd-apply.service", "pdmuxd-apply.timer"]
    for name, text in units:
        # The commands are found on this machine, whatever is installed on it.
        (folder / name).write_text(
            re.sub(r"^ExecStart=(git|sh) ", "ExecStart=/bin/true ", text, flags=re.MULTILINE)
        )
    verify = ["systemd-analyze", "verify", "--man=no", *(str(folder / name) for name, _ in units)]
    done = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
