"""Reading files that may be damaged in a process of its own.

Arrow checks pages but trusts the footer of a Parquet file: some flipped bits in one end the process that reads it, by an
exception of C++ that nobody can catch. A command that looks for damage has to live on and name the file.
"""

import asyncio
import os
import resource
import signal
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from types import TracebackType
from typing import Any, TypeVar

from pydanube.kernel.errors import Corrupt, ErrorCode

Result = TypeVar("Result")


class Isolation:
    """Runs one function at a time in another process, which is started anew when it has died of a file."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None

    async def __aenter__(self) -> "Isolation":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            await asyncio.to_thread(self._pool.shutdown, cancel_futures=True)

    async def run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call a function of a module; Corrupt if its process does not survive that."""
        if self._pool is None:
            # A fresh interpreter: this one has threads and an event loop, which do not fork well.
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"), initializer=_prepare)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, function, *arguments)
        except BrokenProcessPool as error:
            self._pool.shutdown()
            self._pool = None
            raise Corrupt(
                "its footer is damaged so that it cannot be read as Parquet: restore it from a copy",
                ErrorCode.SEGMENT_CORRUPT,
            ) from error


def _prepare() -> None:
    """Ctrl-C is for the command; the library's last words and a dump of its memory are for nobody."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
