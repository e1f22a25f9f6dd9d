"""What is left of a daemon whose place was taken, where no service manager follows: it waits for the new one.

Run as a program, without the package: `python waiter.py PID`, by the process that started PID. So whoever
started the first daemon (a shell, a container's runtime) still has a process to signal and to wait for, of
little memory.
"""

import os
import signal
import sys
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main() -> int:
    """Pass signals on to PID until it ends; its exit code."""
    successor = int(sys.argv[1])

    def pass_on(number: int, _: FrameType | None) -> None:
        os.kill(successor, number)

    for number in SIGNALS:
        signal.signal(number, pass_on)
    # They were blocked when this program was begun, so that none is lost.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    while True:
        pid, status = os.waitpid(-1, 0)
        if pid == successor:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
