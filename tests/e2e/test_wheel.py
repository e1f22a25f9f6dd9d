"""The wheel alone, in an empty environment and an empty folder: from its file to a first streamed token.

It is resolved and installed as a stranger would install it, so it needs the indexes that pip is set to use.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from pdmuxd.daemon.sglang_environment.indexes import pip_settings, uv_environment

ROOT = Path(__file__).parents[2]
WAIT_S = 270.0


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """What `make wheel` builds, from links to the sources, so that nothing is left among them."""
    place = tmp_path_factory.mktemp("dist")
    source = place / "source"
    source.mkdir()
    kept = ("pyproject.toml", "constraints.txt", "LICENSE", "README.md")
    for name in (*kept, "controlplane", "daemon", "engine", "migrations", "systemd", "tui"):
        (source / name).symlink_to(ROOT / name)
    uv("build", "--quiet", "--no-build-isolation", "--python", sys.executable, "--out-dir", place, source)
    return place


def uv(*arguments):
    python = [sys.executable, "-m", "pip", "config", "list"]
    listing = subprocess.run(python, capture_output=True, text=True, check=True).stdout
    command = [str(Path(sys.executable).with_name("uv")), *map(str, arguments)]
    environ = uv_environment(pip_settings(listing), os.environ)
    subprocess.run(command, check=True, env=environ, timeout=WAIT_S)


@pytest.mark.slow
@pytest.mark.e2e
def test_a_first_token_is_streamed_by_the_wheel_alone(dist, tmp_path):
    (wheel,) = dist.glob("*.whl")
    began = time.monotonic()
    uv("venv", "--quiet", "--python", sys.executable, tmp_path / "env")
    python = tmp_path / "env" / "bin" / "python"
    uv("pip", "install", "--quiet", "--python", python, "--constraint", ROOT / "constraints.txt", wheel)
    log = tmp_path / "serve.log"
    ports = ("--set", "data.port=0", "--set", "admin.port=0", "--set", "state_dir=state")
    with log.open("w") as out:
        command = [tmp_path / "env" / "bin" / "pdmuxd", *ports, "serve", "--first-run"]
        daemon = subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out)
    try:
        while "curl " not in log.read_text():
            assert daemon.poll() is None, log.read_text()[-2000:]
            assert time.monotonic() - began < WAIT_S, log.read_text()[-2000:]
            time.sleep(0.1)
        one = [sys.executable, str(ROOT / ".ci" / "one_completion.py"), str(log)]
        done = subprocess.run(one, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 0, done.stdout + done.stderr
        print(f"from the wheel to a streamed completion: {time.monotonic() - began:.1f} s")
    finally:
        daemon.terminate()
        daemon.wait(60)
    lock = tmp_path / "env" / "share" / "pdmuxd" / "constraints.txt"
    assert lock.read_bytes() == (ROOT / "constraints.txt").read_bytes(), "for pdmuxd install-sglang"


@pytest.mark.slow
def test_the_sdist_has_what_the_wheel_is_built_from(dist):
    (sdist,) = dist.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"pyproject.toml", "constraints.txt", "LICENSE", "migrations/script.py.mako"}
    wanted |= {f"systemd/{path.name}" for path in (ROOT / "systemd").iterdir() if path.is_file()}
    wanted |= {str(p.relative_to(ROOT)) for p in (ROOT / "engine/emulator/profiles").glob("*.json")}
    wanted |= {str(p.relative_to(ROOT)) for p in (ROOT / "daemon").glob("*/assets/*")}
    assert wanted - names == set()
