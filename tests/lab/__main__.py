"""The project's own experiments, each by its name: `python tests/lab NAME ...`; without one, a list of them.

They are no part of the package: the package is installed, this folder is in a checkout.
"""

from __future__ import annotations

import sys

from experiments import about, experiments, run

if __name__ == "__main__":
    known = experiments()
    if len(sys.argv) < 2 or sys.argv[1] in ("-h", "--help"):
        print("usage: python tests/lab NAME ...; NAME --help has the options\n")
        print("\n".join(f"  {name:24}{about(path)}" for name, path in known.items()))
        sys.exit(0)
    if sys.argv[1] not in known:
        sys.exit(f"{sys.argv[1]!r} is no experiment; allowed are {', '.join(known)}")
    sys.exit(run(sys.argv[1], sys.argv[2:]))
