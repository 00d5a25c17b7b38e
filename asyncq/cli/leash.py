"""`python -m asyncq.cli.leash …`: the command line, for as long as the process that started it lives.

Standard input is a pipe whose other end only the parent has. When the parent is gone, whichever way, the pipe ends, and
this process is told to stop as by SIGTERM: a killed `asyncq dev` leaves no worker behind that would go on running
yesterday's code.

The command itself reads from the null device, so that programs which its handlers start do not read from the leash.
"""

import os
import signal
import sys
import threading

from asyncq.cli import main

__all__: list[str] = []


def _hold() -> None:
    leash = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    threading.Thread(target=_stop_at_the_end_of, args=(leash,), daemon=True, name="leash").start()


def _stop_at_the_end_of(leash: int) -> None:
    while os.read(leash, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    _hold()
    sys.exit(main())
