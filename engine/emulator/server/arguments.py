"""The command line of the emulated engine's process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY
from pdmuxd.engine.emulator.profile import DEFAULT_PROFILE

KEY_VARIABLE = "PDMUXD_ENGINE_API_KEY"

_EXAMPLE = """example:
  python -m pdmuxd.engine.emulator.server --port 30000 --policy muxwise
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the process was asked to do."""

    host: str
    port: int
    link: str | None
    profile: str
    policy: str
    served_model: str | None
    parent_pid: int | None
    measure_noise: float
    measure_seed: int


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of the usage as well."""
        sys.stderr.write(f"error: {message}\n")
        sys.exit(2)


def parse(argv: Sequence[str] | None = None) -> Arguments:
    """Read the command line; exits with 2 and one line on stderr if it is wrong."""
    parser = _Parser(
        prog="python -m pdmuxd.engine.emulator.server",
        description="Serve SGLang's HTTP endpoints from an emulated GPU.",
        epilog=f"{_EXAMPLE}\nRequests must carry the key in {KEY_VARIABLE} as a bearer token, if it is set.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=_port, default=30000, help="0 for any free port (default: %(default)s)"
    )
    parser.add_argument("--link", metavar="ipc://PATH", help="the daemon's link; without it, serve alone")
    parser.add_argument(
        "--profile", default=DEFAULT_PROFILE, help="name or .json file (default: %(default)s)"
    )
    parser.add_argument("--policy", default=DEFAULT_POLICY, help="scheduling policy (default: %(default)s)")
    parser.add_argument("--served-model", metavar="NAME", help="model name (default: the profile's)")
    parser.add_argument("--parent-pid", type=int, metavar="PID", help="finish when this parent process dies")
    parser.add_argument(
        "--measure-noise", type=_ratio, default=0.0, metavar="RATIO", help="scatter of what is measured"
    )
    parser.add_argument("--measure-seed", type=int, default=0, metavar="N", help="of the scatter")
    return Arguments(**vars(parser.parse_args(argv)))


def _ratio(text: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a ratio; allowed are 0 to 1")
    return ratio


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; allowed are 0 to 65535")
    return int(text)
