"""An event loop in a thread of its own, for programs that have none."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from typing import Any, TypeVar

from pydanube.kernel.errors import Rejected

Result = TypeVar("Result")


class LoopThread:
    """Runs coroutines for other threads until it is stopped."""

    def __init__(self) -> None:
        self._loop = _new_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._worker = threading.Thread(target=self._run, name="danube-client", daemon=True)
        self._worker.start()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine there and wait for its result; an interrupt here cancels it there."""
        if threading.current_thread() is self._worker or not self._worker.is_alive():
            work.close()
            raise Rejected(
                "the client is closed, or called from its own event loop: use pydanube.client there"
            )
        future: Future[Result] = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def call_soon(self, function: Callable[[], object]) -> None:
        # A loop that is closed has nobody left to tell.
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """In the loop's thread: begin something that nobody waits for."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def stop(self) -> None:
        if self._worker.is_alive():
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._worker.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            asyncio.set_event_loop(None)
            self._loop.close()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
