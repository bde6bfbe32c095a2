"""What a load needs of a client, whichever protocol it speaks."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from typing import Protocol

from pydanube.bench.plan import Group, Plan, Stream
from pydanube.bench.plan import Protocol as WireProtocol
from pydanube.bench.recorder import Recorder


class Publisher(Protocol):
    """Publishes one stream; tells the recorder when messages were taken."""

    async def send(self, payloads: Sequence[bytes], due_ns: int | None, recorder: Recorder) -> None:
        """Hand messages over, waiting only while there is no room. They were due at `due_ns`, or now."""

    async def drain(self) -> None:
        """Wait until everything handed over was answered."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages that came together: when, how many, their payloads in a row, and their stamps if asked for, as a range if they are one."""

    at_ns: int
    messages: int
    payloads: memoryview
    stamps: Sequence[int]


Take = Callable[[Delivery], None]


class Subscriber(Protocol):
    """Reads a subscription as one of its consumers."""

    async def read(self, take: Take, *, stamped: bool) -> None:
        """Hand over and acknowledge deliveries as they come, until cancelled."""


class Face(Protocol):
    """A client of one protocol."""

    def publisher(self, stream: Stream) -> AbstractAsyncContextManager[Publisher]:
        """Open a producer."""

    def subscriber(self, group: Group, number: int) -> AbstractAsyncContextManager[Subscriber]:
        """Join a subscription, from the earliest message where the protocol can say so."""


def connected(plan: Plan) -> AbstractAsyncContextManager[Face]:
    """One connection of the plan's protocol."""
    # Each protocol brings a library of its own: load the one that is used.
    if plan.protocol is WireProtocol.GRPC:
        from pydanube.bench.grpc import GrpcFace  # noqa: PLC0415

        return GrpcFace(plan)
    from pydanube.bench.native import NativeFace  # noqa: PLC0415

    return NativeFace(plan)


async def open_faces(stack: AsyncExitStack, plan: Plan, connections: int) -> list[Face]:
    """So many connections, closed with the stack."""
    return [await stack.enter_async_context(connected(plan)) for _ in range(connections)]
