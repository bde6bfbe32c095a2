"""A delivered message, and the entry it came in."""

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import count, repeat
from operator import length_hint
from typing import TYPE_CHECKING, Any

from google.protobuf.message import DecodeError

from pydanube.client.unpacking import unpack_batch
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol.danube_pb2 import StreamMessage
from pydanube.protocol.native.batch import read_layout
from pydanube.protocol.native.bodies import NO_OFFSET, Item
from pydanube.protocol.native.timing import COMPACTION_KEY_ATTRIBUTE

if TYPE_CHECKING:
    from pydanube.client.feed import TopicFeed


class Origin:
    """What the messages of one entry share, and the columns in which they differ; None for a column there is not."""

    __slots__ = (
        "append_time_ms",
        "append_times",
        "attempt",
        "attributes",
        "compaction_keys",
        "feed",
        "generation",
        "producer_name",
        "producer_names",
        "publish_time_ms",
        "publish_times",
        "routing_key",
        "routing_keys",
        "row_attributes",
        "schema_id",
        "schema_ids",
        "schema_version",
        "schema_versions",
    )

    def __init__(self, feed: "TopicFeed", item: Item) -> None:
        self.feed = feed
        self.generation = feed.generation
        self.append_time_ms = item.append_ms
        self.attempt = item.attempt
        self.producer_name = ""
        self.publish_time_ms = 0
        self.routing_key: str | None = None
        self.attributes: dict[str, str] = {}
        self.schema_id: int | None = None
        self.schema_version: int | None = None
        self.append_times: list[Any] | None = None
        self.producer_names: list[Any] | None = None
        self.publish_times: list[Any] | None = None
        self.routing_keys: list[Any] | None = None
        self.row_attributes: list[Any] | None = None
        self.schema_ids: list[Any] | None = None
        self.schema_versions: list[Any] | None = None
        self.compaction_keys: list[Any] | None = None


class Message:
    """A delivered message; give it back to `Consumer.ack` or `nack`."""

    __slots__ = ("_index", "_origin", "offset", "payload")

    def __init__(self, payload: bytes, offset: int | None, origin: Origin, index: int) -> None:
        self.payload = payload
        self.offset = offset
        """Place in the topic; None on a non-reliable one."""
        self._origin = origin
        self._index = index

    def __repr__(self) -> str:
        return f"Message({self.topic}, offset={self.offset}, {len(self.payload)} bytes)"

    @property
    def topic(self) -> str:
        """The topic; of a partitioned one, the partition."""
        return self._origin.feed.topic

    @property
    def key(self) -> str | None:
        """The routing key."""
        origin = self._origin
        key: str | None = origin.routing_key
        if origin.routing_keys is not None:
            key = origin.routing_keys[self._index]
        return key

    @property
    def attributes(self) -> dict[str, str]:
        origin = self._origin
        attributes = dict(origin.attributes)
        if origin.row_attributes is not None:
            attributes.update(origin.row_attributes[self._index] or ())
        if origin.compaction_keys is not None and (key := self.compaction_key) is not None:
            attributes[COMPACTION_KEY_ATTRIBUTE] = key
        return attributes

    @property
    def publish_time_ms(self) -> int:
        """When the producer sent it, Unix milliseconds."""
        origin = self._origin
        time_ms: int = origin.publish_time_ms
        if origin.publish_times is not None:
            time_ms = origin.publish_times[self._index]
        return time_ms

    @property
    def publish_time(self) -> datetime:
        return datetime.fromtimestamp(self.publish_time_ms / 1000, UTC)

    @property
    def append_time_ms(self) -> int:
        """When the broker took it, Unix milliseconds."""
        origin = self._origin
        time_ms: int = origin.append_time_ms
        if origin.append_times is not None:
            time_ms = origin.append_times[self._index]
        return time_ms

    @property
    def append_time(self) -> datetime:
        return datetime.fromtimestamp(self.append_time_ms / 1000, UTC)

    @property
    def producer_name(self) -> str:
        origin = self._origin
        name: str = origin.producer_name
        if origin.producer_names is not None:
            name = origin.producer_names[self._index]
        return name

    @property
    def schema_id(self) -> int | None:
        origin = self._origin
        schema_id: int | None = origin.schema_id
        if origin.schema_ids is not None:
            schema_id = origin.schema_ids[self._index]
        return schema_id

    @property
    def schema_version(self) -> int | None:
        origin = self._origin
        schema_version: int | None = origin.schema_version
        if origin.schema_versions is not None:
            schema_version = origin.schema_versions[self._index]
        return schema_version

    @property
    def compaction_key(self) -> str | None:
        origin = self._origin
        if origin.compaction_keys is not None:
            key: bytes | None = origin.compaction_keys[self._index]
            return None if key is None else key.decode()
        return self._origin.attributes.get(COMPACTION_KEY_ATTRIBUTE)

    @property
    def attempt(self) -> int:
        """1 when it is delivered for the first time."""
        return self._origin.attempt


class Unpacked:
    """The messages of a batch, or of a run of rows. They are made one by one as they are taken, so that most are gone
    again before the garbage collector hears of them.
    """

    __slots__ = ("_source", "_values", "feed", "messages")

    def __init__(self, feed: "TopicFeed", values: list[Any]) -> None:
        self.feed = feed
        self._values = values
        self._source = iter(values)
        self.messages: Iterator[Message] = self._source
        """Those not taken yet."""

    @classmethod
    def rows(cls, feed: "TopicFeed", items: list[Item]) -> "Unpacked":
        """Items whose bodies are rows.

        Raises:
            Rejected: the broker sent something that cannot be read.
        """
        return cls(feed, [_unpack_row(feed, item) for item in items])

    @classmethod
    def batch(cls, feed: "TopicFeed", item: Item) -> "Unpacked":
        """An item whose body is a batch.

        Raises:
            Rejected: the broker sent something that cannot be read.
        """
        layout = read_layout(item.body)
        if not 0 < item.messages <= layout.count - item.skip:
            raise Rejected(
                f"{feed.topic}: messages {item.skip} to {item.skip + item.messages} of {layout.count} cannot be",
                ErrorCode.PROTOCOL_VIOLATION,
            )
        origin = Origin(feed, item)
        unpacked = cls(feed, unpack_batch(item, layout, origin))
        offsets: Iterator[int | None] = count(item.base + item.skip)
        if item.base == NO_OFFSET:
            offsets = repeat(None)
        unpacked.messages = map(Message, unpacked._source, offsets, repeat(origin), count())
        return unpacked

    @property
    def has_more(self) -> bool:
        return length_hint(self._source) > 0

    def drop(self) -> None:
        """Nothing more comes, not even to who is iterating already."""
        self._values.clear()


def origin_of(message: Message) -> Origin:
    return message._origin


def _unpack_row(feed: "TopicFeed", item: Item) -> Message:
    try:
        row = StreamMessage.FromString(item.body)
    except DecodeError as error:
        raise Rejected(
            f"{feed.topic}: offset {item.base} cannot be decoded ({error})", ErrorCode.MALFORMED_REQUEST
        ) from error
    origin = Origin(feed, item)
    origin.producer_name = row.producer_name
    origin.publish_time_ms = row.publish_time
    if row.attributes:  # asking first costs a twentieth of copying nothing
        origin.attributes = dict(row.attributes)
    if row.HasField("routing_key"):
        origin.routing_key = row.routing_key
    if row.HasField("schema_id"):
        origin.schema_id = row.schema_id
    if row.HasField("schema_version"):
        origin.schema_version = row.schema_version
    return Message(row.payload, None if item.base == NO_OFFSET else item.base, origin, 0)
