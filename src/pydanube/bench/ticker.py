"""A timer of the kernel's precision: event loops round their own to a millisecond, which would be measured."""

import asyncio
import ctypes
import os
import time
from typing import Final

_CLOCK_MONOTONIC: Final = 1
_NONBLOCK_CLOEXEC: Final = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE: Final = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Timerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Ticker:
    """Wakes one coroutine at given moments of the monotonic clock."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._file = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._file < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._file, self._ring)
        self._waiter: asyncio.Future[None] | None = None

    async def until(self, moment_ns: int) -> None:
        """Return at the moment, or after one turn of the loop if it has passed."""
        if moment_ns <= time.monotonic_ns():
            await asyncio.sleep(0)
            return
        when = _Timerspec(_Timespec(0, 0), _Timespec(*divmod(moment_ns, 1_000_000_000)))
        if self._libc.timerfd_settime(self._file, _ABSOLUTE, ctypes.byref(when), None) < 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime")
        self._waiter = self._loop.create_future()
        await self._waiter

    def close(self) -> None:
        self._loop.remove_reader(self._file)
        os.close(self._file)

    def _ring(self) -> None:
        os.read(self._file, 8)
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
