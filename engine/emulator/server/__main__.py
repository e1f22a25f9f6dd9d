"""`python -m pdmuxd.engine.emulator.server`: the emulated engine as a process.

Exit codes: 0 after a stop that was asked for, 1 when the engine failed, 2 for a wrong argument.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from contextlib import ExitStack

import uvloop

from pdmuxd.engine.core.errors import PdmuxdError
from pdmuxd.engine.emulator.server.arguments import parse
from pdmuxd.engine.emulator.server.process import Parts, Process, prepare


def main() -> int:
    """Run the process; the exit code."""
    arguments = parse()
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    with ExitStack() as cleanup:
        try:
            parts = prepare(arguments, cleanup)
        except PdmuxdError as error:
            return _fail(error, code=2)
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(_run(parts))
        except PdmuxdError as error:
            return _fail(error, code=1)
    return 0


async def _run(parts: Parts) -> None:
    await Process(parts).run()


def _fail(error: PdmuxdError, *, code: int) -> int:
    sys.stderr.write(f"error: {error}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
