"""Which schema a topic follows and how strictly: stored first, then in force on the topic at once.

Partitions of one topic follow the same schema. Each has its own stored configuration; a partition that is made later
begins with that of the others, and one without a subject takes theirs as soon as anybody asks for one.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from pydanube.broker.directory import TopicDirectory
from pydanube.broker.schema_validation import SchemaJudge
from pydanube.broker.topic import Topic
from pydanube.broker.unbroken import unbroken
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.metadata.store import MetadataStore
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.topic_schemas import TopicSchema, TopicSchemas, ValidationPolicy

ATTEMPTS_MAX: Final = 100
"""Each lost one means that the other partitions were configured anew."""


class SchemaControl:
    """Equips topics with judges, and changes by what they judge. A name may also be that of all partitions."""

    def __init__(self, topics: TopicDirectory, store: MetadataStore, registry: SchemaRegistry) -> None:
        self.registry = registry
        self._topics = topics
        self._schemas = TopicSchemas(store, registry)

    def equip(self, topic: Topic, config: TopicSchema) -> None:
        """Give a topic that is being opened its judge."""
        topic.judge = SchemaJudge(topic.text, self.registry.loaded, partial(_let_judge_rest, topic))
        _put_in_force(topic, config)

    async def check_registered(self, subject: str) -> None:
        if await self.registry.schema_id(subject) is None:
            raise Rejected(
                f"schema subject {subject!r} not found: register a schema for it first",
                ErrorCode.SUBJECT_UNKNOWN,
            )

    def config_of_new(self, name: TopicName, subject: str | None) -> TopicSchema:
        """What a topic that is being made follows; the subject may be registered later.

        Raises:
            Conflict: it is a partition, and the others follow another subject.
        """
        others = self._config_of_others(name)
        if others is None:
            return TopicSchema(subject=subject)
        if subject is not None and subject != others.subject:
            raise Conflict(
                f"the other partitions of {name.partition_of} are bound to schema subject {others.subject!r}, not to "
                f"{subject!r}: name that one, or have {name.partition_of} configured anew",
                ErrorCode.SUBJECT_CONFLICT,
            )
        return others

    async def keep(self, name: TopicName, config: TopicSchema) -> None:
        """Store the configuration of a topic that is being made."""
        await self._schemas.keep(name, config)

    async def follow_others(self, topic: Topic) -> None:
        """Have a partition follow what the others do now, who may have been configured while it was made."""
        for _ in range(ATTEMPTS_MAX):
            config = self._config_of_others(topic.name)
            if config is None or config == topic.schema:
                return
            await self._schemas.keep(topic.name, config)
            _put_in_force(topic, config)

    async def adopt(self, topic: Topic, subject: str) -> None:
        """A producer names a subject: the first one binds the topic, others must name the same."""
        if topic.schema.subject is None:
            await self.follow_others(topic)
        if topic.schema.subject != subject:
            _put_in_force(topic, await self._schemas.adopt(topic.name, subject))

    @unbroken
    async def configure(
        self, name: TopicName, subject: str, policy: ValidationPolicy, *, validate_payloads: bool
    ) -> None:
        """Bind a topic to a subject, whatever it was bound to."""
        if await self.registry.schema_id(subject) is None:
            raise Rejected(
                f"schema subject {subject!r} not found: register a schema for it before binding {name} to it",
                ErrorCode.SCHEMA_UNKNOWN,
            )

        async def apply(topic: Topic) -> TopicSchema:
            return await self._schemas.configure(
                topic.name, subject, policy, validate_payloads=validate_payloads
            )

        await self._change_all(name, apply)

    @unbroken
    async def set_policy(self, name: TopicName, policy: ValidationPolicy, *, validate_payloads: bool) -> None:
        """Change the strictness of a topic that is bound to a subject."""

        async def apply(topic: Topic) -> TopicSchema:
            if topic.schema.subject is None:
                await self.follow_others(topic)
            return await self._schemas.set_policy(topic.name, policy, validate_payloads=validate_payloads)

        await self._change_all(name, apply)

    def config(self, name: TopicName) -> TopicSchema:
        """Of a topic, or of the first of its partitions that follows a subject."""
        topics = self._served(name)
        return next((topic.schema for topic in topics if topic.schema.subject is not None), topics[0].schema)

    async def _change_all(self, name: TopicName, apply: Callable[[Topic], Awaitable[TopicSchema]]) -> None:
        changed: set[TopicName] = set()
        # Partitions may be made while others are changed.
        while topics := [topic for topic in self._served(name) if topic.name not in changed]:
            for topic in topics:
                async with topic.changing:
                    topic.check_exists()
                    _put_in_force(topic, await apply(topic))
                changed.add(topic.name)

    def _config_of_others(self, name: TopicName) -> TopicSchema | None:
        """What the other partitions of the same topic follow, if any of them follows a subject."""
        base = name.partition_of
        if base is None:
            return None
        for part in self._topics.partitions(base):
            topic = self._topics.get(part)
            if topic is not None and part != name and topic.schema.subject is not None:
                return topic.schema
        return None

    def _served(self, name: TopicName) -> list[Topic]:
        topics = [topic for part in self._topics.partitions(name) if (topic := self._topics.get(part))]
        if not topics:
            raise Rejected(f"topic {name} not found", ErrorCode.TOPIC_UNKNOWN)
        return topics


def _put_in_force(topic: Topic, config: TopicSchema) -> None:
    judge = topic.judge
    assert judge is not None, "a topic that is served was equipped"
    topic.schema = config
    judge.configure(config, topic.messages_in)
    _let_judge_rest(topic)


def _let_judge_rest(topic: Topic) -> None:
    """Publishes are shown to the judge only while it has something to say."""
    judge = topic.judge
    topic.active_judge = judge if judge is not None and judge.is_active else None
