"""Which schema a topic follows and how strictly: stored first, then in force on the topic at once."""

from functools import partial

from pydanube.broker.directory import TopicDirectory
from pydanube.broker.schema_validation import SchemaJudge
from pydanube.broker.topic import Topic
from pydanube.broker.unbroken import unbroken
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.names import TopicName
from pydanube.metadata.store import MetadataStore
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.topic_schemas import TopicSchema, TopicSchemas, ValidationPolicy


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

    async def note(self, topic: TopicName, subject: str) -> TopicSchema:
        """Bind a topic that is being made to a subject that may be registered later."""
        return await self._schemas.note(topic, subject)

    async def adopt(self, topic: Topic, subject: str) -> None:
        """A producer names a subject: the first one binds the topic, others must name the same."""
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
        for topic in self._served(name):
            async with topic.changing:
                topic.check_exists()
                config = await self._schemas.configure(
                    topic.name, subject, policy, validate_payloads=validate_payloads
                )
                _put_in_force(topic, config)

    @unbroken
    async def set_policy(self, name: TopicName, policy: ValidationPolicy, *, validate_payloads: bool) -> None:
        """Change the strictness of a topic that is bound to a subject."""
        for topic in self._served(name):
            async with topic.changing:
                topic.check_exists()
                config = await self._schemas.set_policy(
                    topic.name, policy, validate_payloads=validate_payloads
                )
                _put_in_force(topic, config)

    def config(self, name: TopicName) -> TopicSchema:
        """Of a topic, or of the first of its partitions."""
        return self._served(name)[0].schema

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
