"""A reader's part of one topic: its channel, and how far it has come."""

from collections.abc import Callable

from pydanube.client.cluster import Cluster
from pydanube.client.credit import Credit
from pydanube.client.feed import Opening, TopicFeed
from pydanube.client.inbox import Inbox
from pydanube.client.position import Position
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.protocol import native_pb2 as pb
from pydanube.protocol.native import frames
from pydanube.protocol.native.bodies import Item
from pydanube.protocol.native.removed import is_removed


class ReadTopic(TopicFeed):
    """After a loss it goes on exactly where it was: nothing twice, nothing left out."""

    comes_to_an_end = True

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        inbox: Inbox,
        credit: Credit,
        *,
        start: Position,
        end: Position | None,
        on_end: Callable[[], None],
    ) -> None:
        super().__init__(cluster, topic, inbox, credit)
        self._start = start
        self._end = end
        self._on_end = on_end

    def _opening(self) -> Opening:
        request = pb.OpenReader(
            topic=self.topic,
            start=self._start.encode(),
            end=None if self._end is None else self._end.encode(),
        )
        return Opening(frames.OPEN_READER, request.SerializeToString(), frames.READER_OPENED)

    def _opened(self, body: bytes) -> None:
        opened = pb.ReaderOpened.FromString(body)
        # From now on in offsets, so that reopening does not find "latest" or a time elsewhere.
        self._start = Position.offset(opened.next_offset)
        if opened.HasField("end_offset"):
            self._end = Position.offset(opened.end_offset)

    def _received(self, items: list[Item]) -> list[Item]:
        """Offsets come one after the other; what was removed of them is left out here."""
        self._patience.succeeded()
        for item in items:
            first = item.base + item.skip
            if first != self._start.value:
                raise Rejected(
                    f"{self.topic}: the broker sent offset {first}, {self._start.value} was next",
                    ErrorCode.PROTOCOL_VIOLATION,
                )
            self._start = Position.offset(first + item.messages)
        kept = [item for item in items if not is_removed(item.body)]
        if len(kept) < len(items):
            left_out = [item for item in items if item not in kept]
            self.taken(sum([item.messages for item in left_out]), sum([len(item.body) for item in left_out]))
        return kept

    def _channel_lost(self) -> None:
        """What is buffered stays: reading goes on behind it."""

    def _closed_by_broker(self) -> None:
        self._is_over = True
        self._on_end()
