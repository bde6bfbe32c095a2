"""The Python client: publishes, consumes and reads over the native protocol.

Reaches brokers through the network only; may import protocol and kernel. Start reading at `client.py`, then
`topic_producer.py` and `feed.py`. `blocking` is the same without async; `grpc` a small client of the gRPC API.
"""

from pydanube.client.client import Client, connect
from pydanube.client.cluster import Location
from pydanube.client.consumer import Consumer
from pydanube.client.errors import QueueFull, Timeout
from pydanube.client.message import Message
from pydanube.client.options import Batching
from pydanube.client.outgoing import PendingSend, Receipt, Run
from pydanube.client.position import Position
from pydanube.client.producer import Producer
from pydanube.client.reader import Reader
from pydanube.client.retries import Retries
from pydanube.client.schema_records import SchemaRef, SchemaReference
from pydanube.client.schemas import Schemas
from pydanube.client.tls import TLS
from pydanube.kernel.errors import (
    Conflict,
    Corrupt,
    DanubeError,
    ErrorCode,
    OutcomeUnknown,
    Rejected,
    Unavailable,
)
from pydanube.kernel.policies import SubscriptionType

__all__ = [
    "TLS",
    "Batching",
    "Client",
    "Conflict",
    "Consumer",
    "Corrupt",
    "DanubeError",
    "ErrorCode",
    "Location",
    "Message",
    "OutcomeUnknown",
    "PendingSend",
    "Position",
    "Producer",
    "QueueFull",
    "Reader",
    "Receipt",
    "Rejected",
    "Retries",
    "Run",
    "SchemaRef",
    "SchemaReference",
    "Schemas",
    "SubscriptionType",
    "Timeout",
    "Unavailable",
    "connect",
]
