"""Small files in the state directory."""

from __future__ import annotations

import os
from pathlib import Path

from pdmuxd.daemon.process.state_file import replace_file


def test_its_owner_alone_reads_it_whatever_the_umask_is(tmp_path: Path) -> None:
    path = tmp_path / "engine.json"
    before = os.umask(0)
    try:
        for content in (b"one", b"other"):
            path.with_suffix(".new").write_bytes(b"left by a daemon that was killed")
            replace_file(path, content)
            assert path.read_bytes() == content
            assert path.stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(before)
