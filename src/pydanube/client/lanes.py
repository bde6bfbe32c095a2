"""What of a producer runs for every message: which lane takes it, and into which batch."""

from typing import Final, Unpack

from mypy_extensions import mypyc_attr

from pydanube.client.budget import Budget
from pydanube.client.fields import Fields, Payload, checked_extras, checked_timing, payload_bytes
from pydanube.client.options import Batching
from pydanube.client.outgoing import MESSAGE_OVERHEAD_BYTES, NO_EXTRAS, UNTIMED, PendingSend
from pydanube.client.routing import partition_of_key
from pydanube.client.topic_producer import TopicProducer
from pydanube.kernel.errors import Rejected


# Apart from `Producer`, which stays plain Python: its coroutines warn when nobody awaits them.
@mypyc_attr(allow_interpreted_subclasses=True)
class Lanes:
    """One lane for each topic or partition, all within one budget."""

    def __init__(self, topic: str, batching: Batching, max_pending_bytes: int) -> None:
        self.topic: Final = topic
        self.budget: Final = Budget(max_pending_bytes)
        self._batch_bytes_max = batching.max_bytes
        self._last_index = batching.max_messages - 1
        self._lanes: list[TopicProducer] = []
        self._only_lane: TopicProducer | None = None
        self._next_turn = 0

    def send_nowait(self, payload: Payload, **fields: Unpack[Fields]) -> PendingSend:
        """Take a message and return at once; await the result for its Receipt, or call `flush` later.

        Raises:
            QueueFull: too much is unanswered: await `ready()`, then send again.
            Rejected: the message cannot be sent as it is.
        """
        # The way of most messages, at well under a microsecond: only a payload, and a batch with room for it.
        lane = self._only_lane
        if lane is not None and not fields and type(payload) is bytes:
            batch = lane.batch
            if batch is not None:
                room = batch.room - len(payload) - MESSAGE_OVERHEAD_BYTES
                if room >= 0:
                    batch.room = room
                    payloads = batch.payloads
                    index = len(payloads)
                    payloads.append(payload)
                    if index >= self._last_index:
                        lane.close_batch()
                    return PendingSend(batch, index)
        if type(payload) is not bytes:
            payload = payload_bytes(payload)
        if not fields:
            return self._lane(None).add(payload, NO_EXTRAS, UNTIMED)
        extras, timing = checked_extras(fields), checked_timing(fields)
        return self._lane(extras.key).add(payload, extras, timing)

    def _lane(self, key: str | None) -> TopicProducer:
        if self._only_lane is not None:
            return self._only_lane
        if not self._lanes:
            raise Rejected(f"the producer of {self.topic} is not open: use it with `async with`")
        if key is not None:
            return self._lanes[partition_of_key(key, len(self._lanes))]
        lane = self._lanes[self._next_turn]
        self._next_turn = (self._next_turn + 1) % len(self._lanes)
        return lane
