"""What the native connections of a broker share: limits, counters, and the room they wait for together."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pydanube.broker.broker import Broker
from pydanube.wire.calls import CallCounts
from pydanube.wire.connections import ConnectionRegister, WritePass
from pydanube.wire.discovery_service import Advertised
from pydanube.wire.native_limits import NativeLimits

if TYPE_CHECKING:
    from pydanube.wire.native_connection import NativeConnection
    from pydanube.wire.native_gate import NativeGate


RECEIVE_BUFFER_BYTES: Final = 256 * 1024


class NativeServer:
    """One per broker; each accepted connection is a `NativeConnection` of it."""

    def __init__(
        self,
        broker: Broker,
        advertised: Advertised,
        *,
        identity: str,
        write_pass: WritePass,
        limits: NativeLimits | None = None,
        is_crowded: Callable[[], bool] = lambda: False,
        new_gate: "Callable[[NativeConnection], NativeGate] | None" = None,
    ) -> None:
        self.new_gate: Final = new_gate
        """Makes what each connection asks about its client; None: everybody may do everything."""
        self.is_crowded: Final = is_crowded
        """Whether publishes are to come more slowly, before they would have to be refused."""
        self.broker: Final = broker
        self.advertised = advertised
        self.identity: Final = identity
        self.write_pass: Final = write_pass
        self.limits: Final = limits or NativeLimits()
        self.connections: Final = ConnectionRegister()
        self.receive_buffer: Final = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        """Of all connections: between receiving into it and taking out what came, the event loop does nothing else."""
        # Counters, read by the metrics page
        self.publish_calls: Final = CallCounts()
        self.request_calls: Final = CallCounts()
        self.protocol_errors_total = 0
        self._held_back: list[Callable[[], None]] = []
        self._patience: asyncio.TimerHandle | None = None

    def hold_back(self, let_in: Callable[[], None]) -> None:
        """Call back when there is room, or after so long that an explicit refusal is better than silence."""
        self._held_back.append(let_in)
        if self._patience is None:
            loop = asyncio.get_running_loop()
            self._patience = loop.call_later(self.limits.crowded_seconds_max, self.let_in)

    def let_in(self) -> None:
        """There is room again."""
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        held_back, self._held_back = self._held_back, []
        for let_in in held_back:
            let_in()
