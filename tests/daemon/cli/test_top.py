from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "url", ["ftp://node", "node:8081", "http://", "http://node:port", "http://node:0", ""]
)
def test_the_address_is_refused_when_it_is_none(pdmuxd, url):
    result = pdmuxd("top", "--url", url, code=2)
    assert "--url is" in result.err
    assert "http://127.0.0.1:8081" in result.err
    assert len(result.err.splitlines()) == 1


def test_the_file_is_named_when_the_token_cannot_be_read(pdmuxd, tmp_path):
    result = pdmuxd("top", "--token-file", str(tmp_path / "none"), code=1)
    assert f"cannot read the admin token in {tmp_path / 'none'}" in result.err
    assert len(result.err.splitlines()) == 1


def test_it_says_so_when_there_is_no_terminal(pdmuxd, monkeypatch):
    monkeypatch.setenv("PDMUXD_ADMIN_TOKEN", "secret")
    result = pdmuxd("top", code=2)
    assert "top needs a terminal" in result.err
    assert "secret" not in result.err


def test_nothing_of_the_console_is_imported_when_help_is_asked_for():
    code = (
        "import sys; from pdmuxd.daemon.cli.main import main; main(['top', '--help']); "
        "sys.exit('textual' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr
    assert "--token-file" in done.stdout
    assert "--token " not in done.stdout


def test_only_what_the_first_screen_needs_is_imported_when_the_console_starts():
    unneeded = {
        *("fastapi", "sqlmodel", "numpy", "uvicorn", "httpx"),
        *("pdmuxd.engine.core.policies.registry", "pdmuxd.tui.tenants.screen"),
    }
    code = (
        "import sys, pdmuxd.daemon.cli.main, pdmuxd.daemon.cli.admin_address, pdmuxd.daemon.settings; "
        f"import pdmuxd.tui.run; print(*sorted({unneeded} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=250)
    assert (done.stdout, done.stderr) == ("\n", "")
