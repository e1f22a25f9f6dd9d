"""Entry point of the plugin (`sglang.srt.plugins`): SGLang calls `register` in each of its processes."""

from __future__ import annotations

import logging
import os
import sys

from pdmuxd.engine.core.errors import PdmuxdError
from pdmuxd.engine.sglang.environment import read_environment

_log = logging.getLogger(__name__)


def register() -> None:
    """Register the hooks in a server that pdmuxd started; nothing in any other.

    SGLang only logs what a plugin raises and then serves without it, so a plugin that cannot work here ends
    the process with one clear line instead.
    """
    try:
        environment = read_environment(os.environ)
        if environment is None:
            return
        from pdmuxd.engine.sglang.api.symbols import installed_version
        from pdmuxd.engine.sglang.internals.hooks import register_hooks

        installed_version()
        register_hooks(environment)
    except PdmuxdError as error:
        _stop(str(error))
    except (ImportError, AttributeError) as error:
        _stop(f"SGLang is not as pdmuxd needs it: {error}")


def _stop(reason: str) -> None:
    sys.stderr.write(f"pdmuxd plugin: {reason}\n")
    sys.stderr.flush()
    os._exit(2)
