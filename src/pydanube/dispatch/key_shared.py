"""Key-shared: every routing key has one owner at a time, and one outstanding message at most.

Keys are spread by count, not by hash: a new key goes to the eligible consumer that owns the fewest and stays
there while it is used. A consumer without a stream keeps its keys for a grace of 3 s, then they move to the
others; when it comes back it gets its share again. A key that moves leaves its outstanding message with the
old owner; whatever follows goes to the new one, after that message is settled or failed. So a key stays in
order through joins, losses, nacks and skips: only the head of its queue is ever sent.

Three things may keep a key from progressing: its head is blocked, every consumer that wants it is away, or its
owner takes nothing for now. The first two hold its messages as long as they last; the third matters only while
another consumer could take more. Such messages do not count against the window, or they would fill it and stop
the other keys: up to HELD_MAX of them are kept beside it. Their bytes do count, and no more than a window is
ever outstanding.

A delayed message takes its place in its key's queue only when its delivery time comes: in log order among those
not sent yet, but behind the head. Until then it holds back nothing, so later messages of its key overtake it; and
only then is it asked who wants it.
"""

from bisect import bisect_left
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from pydanube.dispatch.actions import Action
from pydanube.dispatch.consumer import Consumer
from pydanube.dispatch.entry import READY, WAITING, Entry
from pydanube.dispatch.key_filter import KeyFilters
from pydanube.dispatch.key_ownership import (
    KEY_LENGTH_REMEMBERED_MAX,
    KEYS_REMEMBERED_MAX,
    least_loaded,
    pull_fair_share,
)
from pydanube.dispatch.key_queue import KeyQueue
from pydanube.dispatch.reliable import ReliableSubscription
from pydanube.dispatch.settings import Settings
from pydanube.dispatch.window import DELAYED_MAX

EVICTION_GRACE_MS: Final = 3_000
OUTSTANDING_PER_CONSUMER_MAX: Final = 1_000
HELD_MAX: Final = 10_000


class KeySharedSubscription(ReliableSubscription):
    """Sends each key's messages one by one to the key's owner."""

    def __init__(self, cursor: int, settings: Settings) -> None:
        super().__init__(cursor, settings)
        self._keyed = True
        self._keys: dict[str | bytes, KeyQueue] = {}
        self._held = 0
        self._reroute_due = False
        self._to_serve: dict[int, Consumer] = {}
        """Consumers that something is ready for, in the order in which they are served."""

    def room(self) -> int:
        if self._attached == 0 or self.bytes_held >= self._bytes_max:
            return 0
        room = self._messages_max - len(self._entries)
        if self._held > 0:
            room += min(self._held, HELD_MAX)
        if self.delayed > 0:
            room += min(self.delayed, DELAYED_MAX)
        return room if room > 0 else self._room_beside_stuck_consumers()

    def _room_beside_stuck_consumers(self) -> int:
        """The window is full. If consumers that take nothing now fill it, the others must not starve."""
        unsent = 0
        starving = False
        for consumer in self._consumers.values():
            if (
                consumer.credit <= 0
                or consumer.outstanding >= OUTSTANDING_PER_CONSUMER_MAX
                or consumer.limit.left <= 0
            ):
                unsent += consumer.unsent
            elif not consumer.ready:
                starving = True
        if not starving:
            return 0
        beside = min(self._held + unsent, HELD_MAX) + min(self.delayed, DELAYED_MAX)
        return max(self._messages_max - self.messages_held + beside, 0)

    # Queues.

    def _add_range(self, entry: Entry) -> None:
        raise AssertionError("a batch has many keys: offer its messages one by one")

    def _enqueue(self, entry: Entry, key: str | bytes) -> bool:
        queue = self._keys.get(key)
        owner = queue.owner if queue is not None else least_loaded(self._consumers.values(), key)
        if owner is None and self._anybody_live():
            return False
        if queue is None:
            if len(self._keys) >= KEYS_REMEMBERED_MAX + len(self._entries):
                self._forget_idle_keys()
            queue = KeyQueue(key)
            self._keys[key] = queue
            queue.give(owner)
        queue.recent = True
        queue.entries.append(entry)
        entry.key_queue = queue
        if owner is not None:
            owner.unsent += 1
            if len(queue.entries) == 1:
                self._push(owner, entry)
        if queue.held:
            self._held += 1
        elif queue.owner is None:
            self._note_held(queue)
        return True

    def _fell_due(self, entry: Entry, key: str | bytes) -> None:
        if not self._enqueue(entry, key):
            self.counters.filtered += 1
            self._settle(entry)
            return
        queue = entry.key_queue
        assert queue is not None
        entries = queue.entries
        if len(entries) > 2:
            entries.insert(
                bisect_left(entries, entry.offset, 1, len(entries) - 1, key=_offset), entries.pop()
            )

    def _emptied(self) -> None:
        self._to_serve.clear()
        self._held = 0
        for consumer in self._consumers.values():
            consumer.ready.clear()
            consumer.unsent = 0
        for queue in list(self._keys.values()):
            queue.entries.clear()
            queue.held = False
            if queue.owner is None:
                self._forget(queue)

    def _requeue(self, entry: Entry) -> None:
        queue = entry.key_queue
        assert queue is not None
        owner = queue.owner
        if owner is not None:
            owner.unsent += 1
            self._push(owner, entry)

    def _push(self, owner: Consumer, entry: Entry) -> None:
        heappush(owner.ready, entry.offset)
        self._to_serve[owner.consumer_id] = owner

    def _left_queue(self, entry: Entry) -> None:
        queue = entry.key_queue
        assert queue is not None
        queue.entries.pop(0)
        if queue.held:
            self._held -= 1
        owner = queue.owner
        if queue.entries:
            if owner is not None:
                self._push(owner, queue.entries[0])
            else:
                # Those behind it may be wanted by nobody at all; that is for a tick to find out.
                self._reroute_due = True
                self._timer_ms = min(self._timer_ms, self._now_ms + 1)
        elif owner is None or len(queue.key) > KEY_LENGTH_REMEMBERED_MAX:
            self._forget(queue)

    def _was_blocked(self, entry: Entry) -> None:
        assert entry.key_queue is not None
        self._note_held(entry.key_queue)

    def _unblocked(self, entry: Entry) -> None:
        assert entry.key_queue is not None
        entry.state = READY
        self._note_held(entry.key_queue)

    def _note_held(self, queue: KeyQueue) -> None:
        held = queue.is_stuck()
        if held != queue.held:
            queue.held = held
            self._held += len(queue.entries) if held else -len(queue.entries)

    def _dispatch(self, allowance: int, deadline_ms: int, actions: list[Action]) -> int:
        for consumer in list(self._to_serve.values()):
            ready = consumer.ready
            limit = consumer.limit
            served = False
            while ready and consumer.credit > 0 and consumer.outstanding < OUTSTANDING_PER_CONSUMER_MAX:
                # More than a window may be ready: what was held comes free at once.
                if allowance <= 0 or limit.left <= 0:
                    if served:
                        # The others come first the next time.
                        del self._to_serve[consumer.consumer_id]
                        self._to_serve[consumer.consumer_id] = consumer
                    break
                entry = self._entries[heappop(ready)]
                consumer.unsent -= 1
                if entry.expires_ms != 0 and entry.expires_ms <= self._now_ms:
                    self._expire(entry)
                    continue
                self._send(entry, consumer, deadline_ms, actions)
                served = True
                allowance -= 1
            if not ready:
                del self._to_serve[consumer.consumer_id]
        return allowance

    # Owners.

    def _joined(self, consumer: Consumer) -> None:
        # `join` knows no time: the next tick starts the grace in which it has to open a stream.
        self._timer_ms = min(self._timer_ms, self._now_ms)
        self._reroute()

    def _opened(self, consumer: Consumer) -> None:
        consumer.live = True
        consumer.lost_ms = -1
        pull_fair_share(consumer, self._consumers.values(), self._keys.values())
        self._reroute()

    def _taken_over(self, consumer: Consumer) -> None:
        self._take_back(consumer)

    def _lost(self, consumer: Consumer) -> None:
        consumer.lost_ms = self._now_ms
        self._timer_ms = min(self._timer_ms, self._now_ms + EVICTION_GRACE_MS)
        self._take_back(consumer)

    def _left(self, consumer: Consumer) -> None:
        consumer.live = False
        self._take_back(consumer)
        self._reroute()

    def _refiltered(self, consumer: Consumer, filters: Sequence[str]) -> None:
        consumer.filters = KeyFilters(filters)
        for queue in self._keys.values():
            if queue.owner is consumer and not consumer.filters.accept(queue.key):
                queue.give(None)
        self._reroute()

    def _run_timers(self, now_ms: int) -> None:
        super()._run_timers(now_ms)
        for consumer in self._consumers.values():
            if consumer.attached or not consumer.live:
                continue
            if consumer.lost_ms < 0:
                consumer.lost_ms = now_ms
            if now_ms >= consumer.lost_ms + EVICTION_GRACE_MS:
                consumer.live = False
                self._reroute_due = True
            else:
                self._timer_ms = min(self._timer_ms, consumer.lost_ms + EVICTION_GRACE_MS)
        if self._reroute_due:
            self._reroute()

    def _anybody_live(self) -> bool:
        for consumer in self._consumers.values():  # noqa: SIM110 - called for every new key
            if consumer.live:
                return True
        return False

    def _reroute(self) -> None:
        """Find owners for keys that have none, and sort out anew what each consumer may be sent."""
        for queue in list(self._keys.values()):
            if queue.owner is not None and queue.owner.live:
                continue
            queue.give(least_loaded(self._consumers.values(), queue.key) if queue.entries else None)
            self._note_held(queue)
            if not queue.entries:
                self._forget(queue)
            elif queue.owner is None and self._nobody_wants(queue.key):
                self._skip(queue)
        for consumer in self._consumers.values():
            consumer.ready.clear()
        self._to_serve.clear()
        for queue in self._keys.values():
            if queue.owner is not None and queue.entries and queue.entries[0].state == READY:
                self._push(queue.owner, queue.entries[0])
        self._reroute_due = False

    def _nobody_wants(self, key: str | bytes) -> bool:
        """No registered consumer accepts the key, not even one that is away. With none registered, wait."""
        if not self._consumers:
            return False
        return not any(consumer.filters.accept(key) for consumer in self._consumers.values())

    def _skip(self, queue: KeyQueue) -> None:
        while queue.entries and queue.entries[0].state in (READY, WAITING):
            self.counters.filtered += 1
            self._settle(queue.entries[0])

    def _forget(self, queue: KeyQueue) -> None:
        queue.give(None)
        del self._keys[queue.key]

    def _forget_idle_keys(self) -> None:
        """Make room for new keys, starting with those not used since the last time."""
        idle = [queue for queue in self._keys.values() if not queue.entries]
        stale = [queue for queue in idle if not queue.recent]
        for queue in idle:
            queue.recent = False
        for queue in (stale or idle)[: KEYS_REMEMBERED_MAX // 2]:
            self._forget(queue)

    def validate(self) -> None:
        super().validate()
        ready: dict[int, list[int]] = {consumer_id: [] for consumer_id in self._consumers}
        owned = dict.fromkeys(self._consumers, 0)
        unsent = dict.fromkeys(self._consumers, 0)
        held = 0
        for key, queue in self._keys.items():
            assert queue.held == queue.is_stuck(), key
            held += len(queue.entries) if queue.held else 0
            behind = [entry.offset for entry in queue.entries[1:]]
            assert behind == sorted(behind), key
            assert all(entry.state == READY and entry.attempts == 0 for entry in queue.entries[1:]), key
            if queue.owner is None:
                assert queue.entries, key
                continue
            assert queue.owner.live, key
            owned[queue.owner.consumer_id] += 1
            unsent[queue.owner.consumer_id] += queue.unsent()
            if queue.entries and queue.entries[0].state == READY:
                ready[queue.owner.consumer_id].append(queue.entries[0].offset)
        assert sum(len(queue.entries) for queue in self._keys.values()) + self.delayed == len(self._entries)
        assert self._surplus == 0
        assert held == self._held, (held, self._held)
        for consumer in self._consumers.values():
            assert sorted(consumer.ready) == sorted(ready[consumer.consumer_id]), consumer.consumer_id
            assert not consumer.ready or consumer.consumer_id in self._to_serve, consumer.consumer_id
            assert consumer.unsent == unsent[consumer.consumer_id], consumer.consumer_id
            assert consumer.keys_owned == owned[consumer.consumer_id], consumer.consumer_id
            assert consumer.live or not consumer.attached, consumer.consumer_id
            assert consumer.outstanding <= OUTSTANDING_PER_CONSUMER_MAX, consumer.consumer_id


def _offset(entry: Entry) -> int:
    return entry.offset
