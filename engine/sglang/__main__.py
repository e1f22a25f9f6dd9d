"""`python -m pdmuxd.engine.sglang`: a stock SGLang server with the plugin in force."""

from __future__ import annotations

import sys

from pdmuxd.engine.sglang.launch.main import main

# SGLang starts its processes anew from this module; only the first of them may launch.
if __name__ == "__main__":
    sys.exit(main())
