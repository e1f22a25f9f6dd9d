"""The command line of the engine's process."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NoReturn

from pdmuxd.engine.core.policies.registry import DEFAULT_POLICY

KEY_VARIABLE = "PDMUXD_ENGINE_API_KEY"

_EXAMPLE = """example:
  python -m pdmuxd.engine.sglang --model /models/llama-8b --policy muxwise -- --mem-fraction-static 0.8
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arguments:
    """What the process was asked to do."""

    host: str
    port: int
    link: str | None
    policy: str
    model: str
    served_model: str
    tp_size: int
    partitions: tuple[tuple[int, int], ...] | None
    """(prefill_sms, decode_sms); None for the default table of the device."""
    partition_kernels: bool
    """Whether kernels are chosen for each partition's SMs."""
    kernels_file: str | None
    """Keeps which kernels are fastest; None to time them at every start."""
    parent_pid: int | None
    extra: tuple[str, ...]
    """SGLang's own flags."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """One line instead of the usage as well."""
        sys.stderr.write(f"error: {message}\n")
        sys.exit(2)


def parse(argv: Sequence[str]) -> Arguments:
    """Read the command line; exits with 2 and one line on stderr if it is wrong."""
    own, extra = _divide(argv)
    parser = _Parser(
        prog="python -m pdmuxd.engine.sglang",
        usage="%(prog)s --model MODEL [options] [-- SGLANG_FLAG ...]",
        description="Serve a model with SGLang, its scheduler deciding as pdmuxd's policies say.",
        epilog=f"{_EXAMPLE}\nRequests must carry the key in {KEY_VARIABLE} as a bearer token, if it is set.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--model", required=True, metavar="PATH", help="model folder, or a model hub's name")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument("--port", type=_port, default=30000, help="default: %(default)s")
    parser.add_argument("--link", metavar="ipc://PATH", help="the daemon's link; without it, serve alone")
    parser.add_argument("--policy", default=DEFAULT_POLICY, help="scheduling policy (default: %(default)s)")
    parser.add_argument("--served-model", metavar="NAME", help="model name (default: the folder's)")
    parser.add_argument("--tp-size", type=_count, default=1, metavar="N", help="GPUs (default: %(default)s)")
    parser.add_argument(
        "--partitions", type=_partitions, metavar="P,D;P,D", help="SM splits (default: the device's)"
    )
    parser.add_argument(
        "--kernels-file", metavar="FILE", help="where to keep which kernels are fastest on each partition"
    )
    parser.add_argument(
        "--no-partition-kernels",
        dest="partition_kernels",
        action="store_false",
        help="launch on partitions what is made for all SMs",
    )
    parser.add_argument("--parent-pid", type=int, metavar="PID", help="finish when this parent process dies")
    given = parser.parse_args(own)
    name = given.served_model or given.model.rstrip("/").rpartition("/")[2]
    return Arguments(**(vars(given) | {"served_model": name, "extra": extra}))


def _divide(argv: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """What is ours, and what stands behind the first `--`."""
    if "--" not in argv:
        return list(argv), ()
    at = list(argv).index("--")
    return list(argv[:at]), tuple(argv[at + 1 :])


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port; allowed are 1 to 65535")
    return int(text)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 64:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of GPUs; allowed are 1 to 64")
    return int(text)


def _partitions(text: str) -> tuple[tuple[int, int], ...]:
    splits = []
    for pair in text.split(";"):
        prefill_sms, comma, decode_sms = pair.partition(",")
        if not (comma and prefill_sms.isdigit() and decode_sms.isdigit()):
            raise argparse.ArgumentTypeError(f"{pair!r} is not PREFILL_SMS,DECODE_SMS, such as 96,36")
        splits.append((int(prefill_sms), int(decode_sms)))
    return tuple(splits)
