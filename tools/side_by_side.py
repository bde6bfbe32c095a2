"""Run commands at the same time: `python tools/side_by_side.py NAME=COMMAND...`; fails if one of them fails, and says which.

The last one has the terminal. What the others say comes when all have ended, that of those that failed at the very end.
"""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO

SECONDS_TO_END_MAX = 10
INTERRUPTIONS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Running:
    name: str
    process: subprocess.Popen[bytes]
    output: IO[bytes] | None
    """None: it has the terminal."""

    @classmethod
    def start(cls, name: str, command: str, output: IO[bytes] | None) -> "Running":
        # In a session of its own, so that all it has started can be ended with it.
        process = subprocess.Popen(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        return cls(name, process, output)

    @property
    def has_failed(self) -> bool:
        return self.process.returncode != 0

    def show(self) -> None:
        if self.output is not None:
            print(f"\n==== {self.name} ====", flush=True)
            self.output.seek(0)
            sys.stdout.buffer.write(self.output.read())
            sys.stdout.buffer.flush()

    def tell(self, how: signal.Signals) -> None:
        """To all that it has started too."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)


def main(arguments: Sequence[str]) -> int:
    *aside, last = (argument.partition("=")[::2] for argument in arguments)
    with ExitStack() as files:
        early = _heed_interruptions_later()
        running = [Running.start(*each, files.enter_context(tempfile.TemporaryFile())) for each in aside]
        running.append(Running.start(*last, None))
        try:
            _heed_interruptions(early)
            for each in running:
                each.process.wait()
        except KeyboardInterrupt:
            _end(running)
            return 128 + signal.SIGINT
        for each in sorted(running, key=lambda each: each.has_failed):
            each.show()
    failed = [each.name for each in running if each.has_failed]
    print(f"\nFAILED: {', '.join(failed)}" if failed else "\nall passed", flush=True)
    return 1 if failed else 0


def _heed_interruptions_later() -> list[int]:
    """Until all processes are known, so that none is left: where those are noted that come before."""
    early: list[int] = []
    for number in INTERRUPTIONS:
        signal.signal(number, lambda number, _: early.append(number))
    return early


def _heed_interruptions(early: Sequence[int]) -> None:
    for number in INTERRUPTIONS:
        signal.signal(number, signal.default_int_handler)
    if early:
        raise KeyboardInterrupt


def _end(running: Sequence[Running]) -> None:
    for how in (signal.SIGINT, signal.SIGKILL):
        for each in running:
            each.tell(how)
        for each in running:
            with suppress(subprocess.TimeoutExpired):
                each.process.wait(SECONDS_TO_END_MAX)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
