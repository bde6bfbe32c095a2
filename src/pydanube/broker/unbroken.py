"""Changes of facts run to their end, whoever waits for them.

A client may go away at any moment and its call is then cancelled. A change cut short between storing a
decision and acting on it would leave the broker and its facts disagreeing until the next start.
"""

import asyncio
from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import structlog

from pydanube.kernel.errors import DanubeError

log = structlog.get_logger("pydanube.broker")

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")

_running: set[asyncio.Task[Any]] = set()
"""The loop itself holds its tasks weakly. Bounded by what the metadata store lets wait."""


def unbroken(
    change: Callable[Arguments, Coroutine[Any, Any, Result]],
) -> Callable[Arguments, Coroutine[Any, Any, Result]]:
    """Let the coroutine function go on in a task of its own when its caller is cancelled."""

    @wraps(change)
    async def run(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        task = asyncio.get_running_loop().create_task(change(*args, **kwargs))
        _running.add(task)
        task.add_done_callback(_running.discard)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(_tell_nobody)
            raise

    return run


def _tell_nobody(task: asyncio.Task[Any]) -> None:
    """Whoever asked is gone: a refusal is of no interest any more, a bug is."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, DanubeError):
        log.error("a change failed after its caller had gone", exc_info=error)
