"""The commands of docs/run.md from an empty node to the first restore, as they stand there."""

import re
from pathlib import Path

from page_walks import walked

from pdmuxd.daemon.process.ports import free_port

PAGE = Path(__file__).parents[2] / "docs" / "run.md"
TITLE = "## Rehearse a first day\n"
LONGEST_S = 600


def commands():
    section = PAGE.read_text().partition(TITLE)[2].partition("\n##")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


def test_the_walk_works_as_it_is_written(folder):
    data, admin = free_port(), free_port()
    ports = {"PDMUXD_DATA__PORT": str(data), "PDMUXD_ADMIN__PORT": str(admin)}
    script = commands().replace("127.0.0.1:8080", f"127.0.0.1:{data}")
    code, shown = walked(script, folder, environ=ports, longest_s=LONGEST_S)
    assert code == 0, shown + (folder / "serve.log").read_text()
    assert "link_lost" in shown
    assert '"usage"' in shown
    assert (folder / "monitoring" / "prometheus.yml").exists()
