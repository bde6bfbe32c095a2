"""Makes topics: new ones, and those the metadata store and the journal know from before."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterator
from contextlib import contextmanager
from weakref import WeakValueDictionary

import structlog

from pydanube.broker import facts
from pydanube.broker.agenda import Agenda
from pydanube.broker.dead_letters import DeadLetters
from pydanube.broker.directory import TopicDirectory
from pydanube.broker.facts import StoredTopic, TopicFacts
from pydanube.broker.live_topic import LiveTopic
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.schema_control import SchemaControl
from pydanube.broker.settings import BrokerSettings
from pydanube.broker.topic import Topic
from pydanube.kernel.clock import Clock, Dice
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import DispatchStrategy, Policies
from pydanube.log.journal import Journal
from pydanube.metadata.counters import next_id
from pydanube.metadata.store import ABSENT, MetadataStore

log = structlog.get_logger("pydanube.broker")

TOPIC_IDS_AT_ONCE = 100


class TopicMaker:
    """Namespaces with their policies, and the one way a topic comes into the directory."""

    def __init__(
        self,
        topics: TopicDirectory,
        *,
        settings: BrokerSettings,
        store: MetadataStore,
        journal: Journal,
        agenda: Agenda,
        clock: Clock,
        dice: Dice,
        schemas: SchemaControl,
    ) -> None:
        self.namespaces: dict[str, Policies] = {}
        self._topics = topics
        self._settings = settings
        self._store = store
        self._journal = journal
        self._agenda = agenda
        self._clock = clock
        self._schemas = schemas
        self._dead_letters = DeadLetters(self._for_dead_letters, clock, dice)
        self._changing: WeakValueDictionary[TopicName, asyncio.Lock] = WeakValueDictionary()
        """By the name without partition."""
        self._making: Counter[str] = Counter()
        """How many topics are being made, by namespace."""
        self._numbering = asyncio.Lock()
        self._topic_ids: deque[int] = deque()

    async def load_namespaces(self) -> None:
        """Bring back every namespace; make those that have to exist."""
        self.namespaces = await facts.load_namespaces(self._store)
        for namespace in self.needed_namespaces:
            if namespace not in self.namespaces:
                policies = self._settings.policies
                await self._store.put(facts.namespace_policy_key(namespace), facts.encode(policies))
                self.namespaces[namespace] = policies

    @property
    def needed_namespaces(self) -> tuple[str, ...]:
        """Those made anew at every start if they are missing."""
        return ("default", "system", *self._settings.bootstrap_namespaces)

    async def create(self, name: TopicName, dispatch: DispatchStrategy, subject: str | None) -> Topic:
        """Make a topic that nobody has yet; one that somebody was faster to make is as good."""
        if not self._settings.auto_create_topics:
            raise Rejected(f"topic {name} not found, and auto_create_topics is off", ErrorCode.TOPIC_UNKNOWN)
        async with self.changing(name):
            # Somebody was faster: that is success, not a conflict.
            return self._topics.get(name) or await self._make(name, dispatch, subject)

    async def create_new(self, name: TopicName, dispatch: DispatchStrategy, subject: str | None) -> Topic:
        """Make a topic because an operator says so: it must not exist."""
        async with self.changing(name):
            if self._topics.get(name) is not None:
                raise Conflict(f"topic {name} exists already", ErrorCode.TOPIC_CONFLICT)
            return await self._make(name, dispatch, subject)

    def changing(self, name: TopicName) -> asyncio.Lock:
        """To be held while a topic, or a partition of it, is made or deleted."""
        return self._changing.setdefault(name.partition_of or name, asyncio.Lock())

    async def _make(self, name: TopicName, dispatch: DispatchStrategy, subject: str | None) -> Topic:
        with self._within_namespace(name):
            self._topics.check_new(name)
            schema = self._schemas.config_of_new(name, subject)
            topic_id = await self.new_id()
            record = TopicFacts(id=topic_id, dispatch=dispatch, created_ms=self._clock.now_ms())
            stored = StoredTopic(name=name, facts=record, schema=schema)
            await self._store.put(facts.topic_key(name), facts.encode(record), expected_version=ABSENT)
            if schema.subject is not None:
                await self._schemas.keep(name, schema)
            stored.policies = await facts.load_topic_policies(self._store, name)
            topic = await self.open(stored)
            await self._schemas.follow_others(topic)
        log.info("topic created", topic=str(name), topic_id=topic_id, dispatch=dispatch.name.lower())
        return topic

    async def adopt(self, name: TopicName, topic_id: int, offsets: tuple[int, int]) -> Topic:
        """Make a reliable topic whose history was brought from elsewhere; `offsets` are its first and its next one."""
        async with self.changing(name):
            if self._topics.get(name) is not None:
                raise Conflict(
                    f"topic {name} exists already: import under another name", ErrorCode.TOPIC_CONFLICT
                )
            record = TopicFacts(
                id=topic_id, dispatch=DispatchStrategy.RELIABLE, created_ms=self._clock.now_ms()
            )
            with self._within_namespace(name):
                self._topics.check_new(name)
                # The journal first: a topic that exists has its offsets. One that does not is forgotten at the next
                # start.
                topic = await self.open(StoredTopic(name=name, facts=record), adopted=offsets)
                await self._store.put(facts.topic_key(name), facts.encode(record), expected_version=ABSENT)
                await self._schemas.follow_others(topic)
            log.info("topic imported", topic=str(name), topic_id=topic_id, offsets=offsets)
            return topic

    async def open(self, stored: StoredTopic, *, adopted: tuple[int, int] | None = None) -> Topic:
        """Serve a topic whose facts are stored."""
        assert stored.facts is not None
        topic: Topic
        if stored.facts.dispatch is DispatchStrategy.RELIABLE:
            topic_log = await self._journal.open_topic(
                stored.facts.id,
                stored.name,
                fsync=self._settings.fsync_of(stored.name),
                adopted=adopted,
            )
            topic = ReliableTopic(
                stored,
                self._policies_of(stored),
                topic_log=topic_log,
                max_unacked_messages=self._settings.max_unacked_messages,
                agenda=self._agenda,
                clock=self._clock,
                dead_letters=self._dead_letters,
            )
        else:
            topic = LiveTopic(stored, self._policies_of(stored), self._clock)
        topic.has_own_policies = stored.policies is not None
        self._schemas.equip(topic, stored.schema)
        self._topics.add(topic)
        return topic

    def _policies_of(self, stored: StoredTopic) -> Policies:
        return stored.policies or self.namespaces.get(stored.name.namespace) or Policies()

    def is_making_in(self, namespace: str) -> bool:
        """Whether a topic of the namespace is about to exist."""
        return self._making[namespace] > 0

    @contextmanager
    def _within_namespace(self, name: TopicName) -> Iterator[None]:
        """Make a topic in a namespace that exists, and is not deleted meanwhile."""
        if name.namespace not in self.namespaces:
            raise Rejected(
                f"namespace {name.namespace!r} not found: create it first", ErrorCode.NAMESPACE_UNKNOWN
            )
        self._making[name.namespace] += 1
        try:
            yield
        finally:
            self._making[name.namespace] -= 1

    async def new_id(self) -> int:
        """Numbers are fetched many at once; those left at a stop are never given out, of which there are plenty."""
        async with self._numbering:
            if not self._topic_ids:
                first = await next_id(self._store, facts.TOPIC_ID_COUNTER, TOPIC_IDS_AT_ONCE)
                self._topic_ids.extend(range(first, first + TOPIC_IDS_AT_ONCE))
            return self._topic_ids.popleft()

    async def _for_dead_letters(self, topic_name: str) -> Topic:
        name = TopicName.parse(topic_name)
        return self._topics.get(name) or await self.create(name, DispatchStrategy.RELIABLE, None)
