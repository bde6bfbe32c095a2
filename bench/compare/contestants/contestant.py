"""What a contestant is: something that installs itself, serves from an empty folder, and takes orders."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bench.compare.outputs import Outcome
from bench.compare.serving import ServerProcess
from bench.compare.tools import run_tool

IN_FLIGHT = 4096
"""Messages under way and not yet confirmed, all producers together; the same bound for everyone."""


class Durability(StrEnum):
    SYNCED = "synced"
    """On stable storage before the producer hears "ok"."""
    DEFAULT = "default"
    """As the peer comes out of its package."""


class NotApplicableError(Exception):
    """A contestant has no such thing, or no tool for it; the message says which."""


@dataclass(frozen=True, slots=True)
class Load:
    """One order to a service; `consumers` receive everything each, `rate` 0 is as fast as it goes."""

    topic: str
    size: int
    count: int
    producers: int = 1
    consumers: int = 1
    topics: int = 1
    rate: int = 0

    @property
    def in_flight(self) -> int:
        return IN_FLIGHT // self.producers

    def as_flags(self, port: int) -> list[str]:
        """As our own drivers want it."""
        flags = {
            "address": f"127.0.0.1:{port}",
            "topic": self.topic,
            "size": self.size,
            "count": self.count,
            "producers": self.producers,
            "consumers": self.consumers,
            "topics": self.topics,
            "rate": self.rate,
            "in-flight": self.in_flight,
        }
        return [word for name, value in flags.items() for word in (f"-{name}", str(value))]


class Service(ABC):
    """A contestant's running server, and its load generator."""

    def __init__(self, server: ServerProcess) -> None:
        self.server = server
        self.last_command = ""

    @abstractmethod
    def publish(self, load: Load) -> Outcome:
        """Publish `count` messages and wait until the last is confirmed."""

    @abstractmethod
    def consume(self, load: Load) -> Outcome:
        """Read `count` messages that lie in the topic already."""

    @abstractmethod
    def fan_out(self, load: Load) -> Outcome:
        """Publish `count` messages to `consumers` that follow; the outcome counts deliveries."""

    @abstractmethod
    def latency(self, load: Load) -> Outcome:
        """Publish at a rate to one consumer that follows; the outcome has percentiles."""

    def run(self, command: Sequence[str], *, wanted: int | None = 0) -> str:
        """Run a load generator to its end and return what it printed; the command is kept for the report."""
        self.last_command, text = run_tool(command, exit_code=wanted)
        return text


class Contestant(ABC):
    peer: str
    """How `--only` calls it."""
    name: str
    durability: Durability
    settings: str
    """What makes it durable, or what leaves it at its default, in the peer's own words."""
    reads: bool
    """Whether it stands for its peer where durability plays no part (catch-up, idle memory, start-up)."""
    publishes_only: bool = False
    """Whether it is another way of publishing only, and otherwise the same as one that takes part anyway."""
    pilot_messages: int = 4_000
    """How many messages a first guess at its rate takes; more for a tool that starts slowly."""

    @abstractmethod
    def install(self) -> str:
        """Bring everything needed to the tools folder and return the version; raise InstallError."""

    @abstractmethod
    def serve(self, folder: Path) -> AbstractContextManager[Service]:
        """Start the server with its data in an empty folder."""
