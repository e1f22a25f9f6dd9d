"""`python tests/bench/gpu/sitting`: see `command.py`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from sitting.command import main

if __name__ == "__main__":
    sys.exit(main())
