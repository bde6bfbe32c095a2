"""The quota of requests at the gate of a native connection: every request counts, and nothing is lost over it."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from pydanube.kernel.errors import DanubeError, ErrorCode
from pydanube.metadata import MemoryStore
from pydanube.protocol.native import frames
from pydanube.protocol.native.frames import Frame
from pydanube.security.audit import AuditLog
from pydanube.security.policy_guard import PolicyGuard
from pydanube.security.policy_store import PolicyStore
from pydanube.security.quotas import Quotas
from pydanube.security.settings import AuditSettings, Limits
from pydanube.server.process import SystemClock
from pydanube.wire.gatekeeper import Gatekeeper
from pydanube.wire.intake import QUOTA, Intake
from pydanube.wire.native_gate import NativeGate

PER_SECOND = 4
CHANNEL = 7


class StoppedClock(SystemClock):
    """Stands still until the test moves it."""

    ms = 1_000_000

    def monotonic_ms(self) -> int:
        return self.ms


@dataclass
class Connection:
    """A connection without channels: what it handled, what it was told, and whom it asked to be woken."""

    loop: Any = None
    channels: dict[int, Any] = field(default_factory=dict)
    intake: Intake = field(default_factory=Intake)
    server: Any = field(
        default_factory=lambda: SimpleNamespace(
            publish_calls=SimpleNamespace(errors=0), request_calls=SimpleNamespace(errors=0)
        )
    )
    handled: list[int] = field(default_factory=list)
    refused: dict[int, ErrorCode] = field(default_factory=dict)
    alarms: list[tuple[float, Callable[[], None]]] = field(default_factory=list)
    gate: Any = None

    def __post_init__(self) -> None:
        self.loop = self

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Any:
        self.alarms.append((seconds, callback))
        return SimpleNamespace(cancel=lambda: None)

    def get_extra_info(self, name: str) -> Any:
        certificate = {"subjectAltName": (("URI", "spiffe://danube/user/root"),)}
        return {"peername": ("127.0.0.1", 1), "peercert": certificate}[name]

    def fail(self, channel: int, request: int, error: DanubeError) -> None:
        self.refused[request] = error.code

    def take_up(self, frame: Frame) -> None:
        if self.gate.permits(frame):
            self.handled.append(frame.kind)

    def go_on_reading(self, reason: int) -> None:
        self.intake.go_on(reason)

    def receive(self, *received: Frame) -> None:
        for frame in received:
            if not self.gate.must_wait(frame):
                self.take_up(frame)


@pytest.fixture
def clock() -> StoppedClock:
    return StoppedClock()


@pytest.fixture
async def connection(clock: StoppedClock) -> AsyncIterator[Connection]:
    policies = PolicyStore(MemoryStore(clock), super_admins={"root"})
    await policies.start()
    quotas = Quotas(Limits(requests_per_second=PER_SECOND))
    guard = PolicyGuard("mtls", None, policies, AuditLog(AuditSettings(), clock), quotas)
    made: Any = Connection()
    made.gate = NativeGate(Gatekeeper(guard, clock, "danube"), made)
    made.gate.opened(made)
    made.gate.welcome("")
    yield made
    made.gate.lost()
    await policies.close()


def frame(kind: int, request: int = 0) -> Frame:
    return Frame(kind, CHANNEL, request, b"")


COUNTED = (frames.PUBLISH, frames.ACK, frames.NACK, frames.SEEK, frames.LOOKUP, frames.SUBSCRIBE)


@pytest.mark.parametrize("kind", COUNTED)
async def test_a_request_beyond_the_quota_is_refused(connection: Connection, kind: int) -> None:
    connection.receive(*(frame(kind, number) for number in range(1, PER_SECOND + 2)))
    assert connection.handled == [kind] * PER_SECOND
    assert connection.refused == {PER_SECOND + 1: ErrorCode.RATE_EXCEEDED}


@pytest.mark.parametrize("kind", [frames.ACK, frames.NACK])
async def test_what_wants_no_answer_waits_and_so_does_what_comes_behind_it(
    connection: Connection, clock: StoppedClock, kind: int
) -> None:
    connection.receive(*[frame(kind)] * (PER_SECOND + 2), frame(frames.PING, 1))
    assert connection.handled == [kind] * PER_SECOND
    assert connection.intake.is_stopped
    while connection.alarms:
        seconds, wake = connection.alarms.pop()
        clock.ms += round(seconds * 1000)
        wake()
    assert connection.handled == [kind] * (PER_SECOND + 2) + [frames.PING]
    assert connection.refused == {}
    assert not connection.intake.go_on(QUOTA), "it is read from again"


@pytest.mark.parametrize("kind", [frames.CREDIT, frames.PING, frames.PONG, frames.CLOSE])
async def test_what_is_no_request_does_not_count(connection: Connection, kind: int) -> None:
    many = 10 * PER_SECOND
    connection.receive(*[frame(kind, 1)] * many)
    assert connection.handled == [kind] * many
    assert connection.alarms == []
