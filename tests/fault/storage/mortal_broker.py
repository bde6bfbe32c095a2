"""A broker process that kills itself at a named step: `python -m tests.fault.storage.mortal_broker FILE DATA ...`."""

import argparse
import asyncio
import os
import signal
from pathlib import Path

import uvloop

from pydanube.server.config_file import load_config
from pydanube.server.listeners import AddressFlags
from pydanube.server.logging import configure_logging
from pydanube.server.process import SystemClock
from pydanube.server.standalone import Standalone


class LaterClock(SystemClock):
    """Some time after now: what a store keeps apart by age is old at once."""

    def __init__(self, later_ms: int) -> None:
        self._later_ms = later_ms

    def now_ms(self) -> int:
        return super().now_ms() + self._later_ms


class Fate:
    """Once it is armed, SIGKILL when `step` is reached for the `turn`-th time: nothing runs any more after that."""

    def __init__(self, step: str, turn: int) -> None:
        self._step = step
        self._turn = turn
        self._reached = 0
        self._is_armed = False

    def arm(self) -> None:
        self._is_armed = True

    def __call__(self, step: str) -> None:
        if self._is_armed and step == self._step:
            self._reached += 1
            if self._reached == self._turn:
                os.kill(os.getpid(), signal.SIGKILL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("config", type=Path)
    parser.add_argument("data_dir")
    parser.add_argument("--address", required=True)
    parser.add_argument("--admin", required=True)
    parser.add_argument("--die-at", default="")
    parser.add_argument("--turn", type=int, default=1)
    parser.add_argument("--armed", action="store_true", help="from the start on, not only after SIGUSR1")
    parser.add_argument("--later-ms", type=int, default=0)
    arguments = parser.parse_args()
    configure_logging()
    uvloop.run(_serve(arguments))


async def _serve(arguments: argparse.Namespace) -> None:
    stop = asyncio.Event()
    fate = Fate(arguments.die_at, arguments.turn)
    if arguments.armed:
        fate.arm()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    loop.add_signal_handler(signal.SIGUSR1, fate.arm)
    broker = Standalone(
        load_config(
            arguments.config,
            environment={},
            data_dir=arguments.data_dir,
            addresses=AddressFlags(
                broker_addr=arguments.address, admin_addr=arguments.admin, prom_exporter="off"
            ),
        ),
        clock=LaterClock(arguments.later_ms),
        on_step=fate,
    )
    await broker.start()
    print("ready", flush=True)
    await stop.wait()
    await broker.stop()


if __name__ == "__main__":
    main()
