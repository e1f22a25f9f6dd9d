"""docs/start-gpu.md on a real SGLang, on the CPU: its commands in order, from the check of the machine on.

`python tests/lab start-gpu-page` runs the installation before them too, which takes some minutes and 11 GB.
"""

from pathlib import Path

from page_walks import walked
from start_gpu import INSTALLATION, MODEL, blocks, script, seconds

from pdmuxd.daemon.process.ports import free_port

ROOT = Path(__file__).parents[2]
LONGEST_S = 560


def test_each_command_works_as_it_is_written(python, tmp_path):
    (tmp_path / "pdmuxd").symlink_to(ROOT / ".venv")  # as step 2 makes it
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    data, admin = free_port(), free_port()
    chosen = [b for b in blocks() if b.step not in INSTALLATION and b.said.startswith("tested")]
    replaced = {
        MODEL: "~/tiny",
        MODEL.rpartition("/")[2]: "tiny",
        "127.0.0.1:8080": f"127.0.0.1:{data}",
    }
    given = {
        "HOME": str(tmp_path),
        "PDMUXD_DATA__PORT": str(data),
        "PDMUXD_ADMIN__PORT": str(admin),
        "PDMUXD_ENGINE__SGLANG__PYTHON": str(python),
    }
    code, shown = walked(script(chosen, replaced), tmp_path, environ=given, longest_s=LONGEST_S)
    assert code == 0, shown[-4000:]
    assert '"usage"' in shown
    assert '"model":"tiny"' in shown.replace(" ", "")
    assert (tmp_path / "monitoring" / "compose.yml").exists()
    print({step: round(taken, 1) for step, taken in seconds(shown).items()})
