"""What a call ended with, and how patiently it is tried again."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import uniform
from typing import Final, TypeVar

import grpc

from pydanube.kernel.errors import DanubeError, Status

RETRYABLE: Final = frozenset({Status.UNAVAILABLE, Status.DEADLINE_EXCEEDED, Status.RESOURCE_EXHAUSTED})

Result = TypeVar("Result")


class CallFailed(DanubeError):
    """The broker, or the way to it, answered with an error; `status` is its gRPC status."""

    def __init__(self, method: str, status: Status, details: str) -> None:
        super().__init__(f"{method.rpartition('/')[2]} failed with {status.name}: {details or 'no details'}")
        self._status = status

    @property
    def status(self) -> Status:
        return self._status

    @property
    def retryable(self) -> bool:
        return self._status in RETRYABLE

    @classmethod
    def of(cls, method: str, error: grpc.RpcError) -> "CallFailed":
        assert isinstance(error, grpc.aio.AioRpcError)
        return cls(method, Status(error.code().value[0]), error.details() or "")


@dataclass(frozen=True, slots=True)
class Retries:
    """How often and how patiently to try again: 5 times, 200 ms longer each time, 5 s at most."""

    attempts_max: int = 5
    base_ms: int = 200
    delay_ms_max: int = 5_000

    async def run(self, call: Callable[[], Awaitable[Result]]) -> Result:
        """Call until it succeeds, fails for good, or has been tried often enough."""
        attempt = 0
        while True:
            try:
                return await call()
            except CallFailed as error:
                attempt += 1
                if not error.retryable or attempt > self.attempts_max:
                    raise
            await self.pause(attempt)

    async def pause(self, attempt: int) -> None:
        """Wait before the given retry, counted from 1; spread so that many clients do not come in step."""
        await asyncio.sleep(min(self.base_ms * attempt, self.delay_ms_max) * uniform(0.5, 1.0) / 1000)
