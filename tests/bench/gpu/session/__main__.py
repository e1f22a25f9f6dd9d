"""`python tests/bench/gpu/session`: see `command.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from session.command import main

if __name__ == "__main__":
    sys.exit(main())
