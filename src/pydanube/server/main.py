"""Run a broker in the foreground until it is told to stop."""

import asyncio
import signal
import sys
from pathlib import Path

import structlog
import uvloop

from pydanube.kernel.errors import DanubeError
from pydanube.server.config import ServerConfig
from pydanube.server.process import tune_process
from pydanube.server.standalone import Standalone

log = structlog.get_logger("pydanube.server")


def run(config: ServerConfig) -> int:
    """Serve until SIGTERM or SIGINT; return the exit status: 0 after a clean stop, 1 if it could not start."""
    tune_process()
    for warning in config.warnings:
        log.warning(warning)
    try:
        uvloop.run(_serve(config))
    except DanubeError as error:
        log.error("broker not started", code=error.code.name, error=error.text)
        return 1
    except OSError as error:
        log.error("broker not started", error=str(error))
        return 1
    return 0


async def _serve(config: ServerConfig) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    broker = Standalone(config)
    await broker.start()
    _print_next_steps(config)
    await stop.wait()
    log.info("broker stopping")
    await broker.stop()
    log.info("broker stopped")


def _print_next_steps(config: ServerConfig) -> None:
    """Tell whoever started it by hand what to try; the log on stderr is for everybody else."""
    url, metrics = config.listeners.connect_url, config.listeners.prometheus
    program = sys.argv[0] if Path(sys.argv[0]).name == "danube" else "danube"
    is_open = config.settings.auth.mode == "none"
    look = f"\n    curl http://{metrics}/metrics" if metrics and is_open else ""
    print(
        f"""
  Danube is ready at {url}, its data is in {config.data_dir}

  Try it from another terminal. The first message makes the topic, a subscription gets what comes after it:

    {program} produce -s {url} -t /default/hello -m "first" --reliable
    {program} consume -s {url} -t /default/hello -m my-subscription
    {program} produce -s {url} -t /default/hello -m "Hello, Danube!" --reliable --count 10{look}

  Ctrl-C stops it; nothing acknowledged is lost.
""",
        flush=True,
    )
