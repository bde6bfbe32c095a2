"""How a producer batches and what else its topics share: plain values, which may be copied and pickled."""

from dataclasses import dataclass
from typing import Final, Literal

from pydanube.kernel.errors import Rejected
from pydanube.protocol.native.batch import BATCH_MESSAGES_MAX

BATCH_BYTES_LIMIT: Final = 2 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Batching:
    """When the messages collected for a topic leave as one batch: at the first of these bounds.

    `linger_ms` is how long a message waits for company at most. A message somebody awaits does not wait while
    nothing else of the producer is on its way; with `linger_ms=0` none does.
    """

    linger_ms: float = 5
    max_bytes: int = 256 * 1024
    max_messages: int = 1000
    compression: Literal["lz4", "zstd"] | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.linger_ms <= 60_000:
            raise Rejected(f"invalid linger_ms {self.linger_ms}: expected 0 to 60000")
        if not 1 <= self.max_bytes <= BATCH_BYTES_LIMIT:
            raise Rejected(f"invalid max_bytes {self.max_bytes}: expected 1 to {BATCH_BYTES_LIMIT}")
        if not 1 <= self.max_messages <= BATCH_MESSAGES_MAX:
            raise Rejected(f"invalid max_messages {self.max_messages}: expected 1 to {BATCH_MESSAGES_MAX}")
        if self.compression not in (None, "lz4", "zstd"):
            raise Rejected(f"invalid compression {self.compression!r}: expected None, 'lz4' or 'zstd'")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """What all topics of a producer share."""

    reliable: bool
    idempotent: bool
    exclusive: bool
    batching: Batching
    schema_subject: str | None
