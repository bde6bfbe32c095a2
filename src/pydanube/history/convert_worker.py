"""The converter's process: a job per line of standard input, an answer per line of standard output.

    python -m pydanube.history.convert_worker

It gives way to the broker whenever both want a core or the disk, and ends as soon as its input does: then the broker
has ended, or needs it no longer.
"""

import os
import signal
import sys
from contextlib import suppress
from queue import Queue
from threading import Thread
from typing import BinaryIO

NICENESS = 10
"""The kernel makes the priority of disk accesses follow from it."""


def main() -> None:
    os.nice(NICENESS)
    # Here, so that half a second of loading is not done at the priority of the broker.
    from pydanube.history.convert_answer import answered  # noqa: PLC0415

    # Not before everything is loaded: on a busy machine that would take minutes at such a priority.
    _give_way()
    # The interrupt key reaches every process of a terminal, but when to end is the broker's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = _claim_output()
    lines: Queue[bytes] = Queue(maxsize=1)
    Thread(target=_read_lines, args=(lines,), daemon=True).start()
    while True:
        answers.write(answered(lines.get()))
        answers.flush()


def _give_way() -> None:
    """Run only when nobody else wants the core.

    Nice alone is not enough: beside a busy process of niceness 10 a publisher's p99 was eight times what it was alone.
    """
    # Some containers forbid it; niceness is there then.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _claim_output() -> BinaryIO:
    """Standard output for answers alone: whatever else is printed goes where errors go."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def _read_lines(lines: Queue[bytes]) -> None:
    for line in sys.stdin.buffer:
        lines.put(line)
    # At once, in the middle of a job too: what it leaves behind has no name that counts.
    os._exit(0)


if __name__ == "__main__":
    main()
