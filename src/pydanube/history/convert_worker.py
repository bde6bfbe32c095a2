"""The converter's process: a job per line of standard input, an answer per line of standard output.

    python -m pydanube.history.convert_worker

It gives way to the broker whenever both want a core or the disk, unless a job is hurried. It ends as soon as its input
does: then the broker has ended, or needs it no longer.
"""

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from queue import Queue
from threading import Thread
from typing import BinaryIO

NICENESS = 10
"""The kernel makes the priority of disk accesses follow from it."""


def main() -> None:
    # Priorities are a thread's own, and nobody may raise his again: who is patient is another than who hurries.
    patient = ThreadPoolExecutor(max_workers=1)
    answered = patient.submit(_load).result()
    # The interrupt key reaches every process of a terminal, but when to end is the broker's to say.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = _claim_output()
    lines: Queue[bytes] = Queue(maxsize=1)
    Thread(target=_read_lines, args=(lines,), daemon=True).start()
    while True:
        answers.write(answered(lines.get(), patient))
        answers.flush()


def _load() -> Callable[[bytes, Executor], bytes]:
    """Load what jobs need, half a second of work, and from then on run only when nobody else wants the core."""
    os.nice(NICENESS)
    from pydanube.history.convert_answer import answered  # noqa: PLC0415

    # Nice alone is not enough: beside a busy process of niceness 10 a publisher's p99 was eight times what it was alone.
    # Not before everything is loaded: on a busy machine that would take minutes. Some containers forbid it.
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    return answered


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
