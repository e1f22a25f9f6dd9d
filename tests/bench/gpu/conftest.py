"""The scripts import each other by their bare names, as when they are run."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
