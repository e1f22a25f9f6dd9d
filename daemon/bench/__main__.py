"""`python -m pdmuxd.daemon.bench NAME ...`: the project's measurements where `pdmuxd` is not on the path."""

from __future__ import annotations

import sys

from pdmuxd.daemon.bench.plans.names import PLANS, run_plan

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in PLANS:
        sys.exit(f"usage: python -m pdmuxd.daemon.bench NAME ...; NAME is one of {', '.join(PLANS)}")
    sys.exit(run_plan(sys.argv[1], sys.argv[2:]))
