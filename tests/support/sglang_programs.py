"""Short programs in SGLang's environment, which the tests' own process has not."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

PATIENCE_S = 300


def said_by(python: Path, program: str, *words: str, variables: Mapping[str, str] | None = None) -> Any:
    """What a program that ends well prints last, which is JSON."""
    command, environ = [python, "-P", "-c", program, *words], os.environ | dict(variables or {})
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environ)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
