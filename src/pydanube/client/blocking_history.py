"""Where stored messages are, for programs without an event loop; see `history.py`."""

from collections.abc import Callable

from pydanube.client.history import History, StoredSegment, TopicStorage
from pydanube.client.loop_thread import LoopThread


class BlockingHistory:
    """Made by `blocking.Client.history`."""

    def __init__(self, history: History, loop: Callable[[], LoopThread]) -> None:
        self._history = history
        self._loop = loop

    def topics(self, namespace: str) -> list[str]:
        return self._loop().run(self._history.topics(namespace))

    def storage(self, topic: str) -> TopicStorage:
        return self._loop().run(self._history.storage(topic))

    def segments(self, topic: str, from_offset: int = 0) -> list[StoredSegment]:
        return self._loop().run(self._history.segments(topic, from_offset))

    def read(self, topic: str, segment_id: str, position: int, size: int) -> bytes:
        return self._loop().run(self._history.read(topic, segment_id, position, size))
