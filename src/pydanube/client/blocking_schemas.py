"""The schema registry for programs without an event loop; see `schemas.py`, whose methods take the same arguments."""

from collections.abc import Callable, Coroutine, Iterable
from typing import Any, TypeVar

from pydanube.client.loop_thread import LoopThread
from pydanube.client.message import Message
from pydanube.client.schema_codec import Codec
from pydanube.client.schema_records import (
    AnySchema,
    Registered,
    Schema,
    SchemaReference,
    SchemaVersion,
    Subject,
    TopicSchema,
)
from pydanube.client.schemas import Schemas

Result = TypeVar("Result")


class BlockingSchemas:
    """Made by `blocking.Client.schemas`."""

    def __init__(self, schemas: Schemas, loop: Callable[[], LoopThread]) -> None:
        self._schemas = schemas
        self._loop = loop

    def register(self, subject: str, definition: str | bytes, type: str, **details: Any) -> Registered:  # noqa: A002
        return self._run(self._schemas.register(subject, definition, type, **details))

    def get(self, schema_id: int, version: int | None = None) -> Schema:
        return self._run(self._schemas.get(schema_id, version))

    def latest(self, subject: str) -> Schema:
        return self._run(self._schemas.latest(subject))

    def versions(self, subject: str) -> list[SchemaVersion]:
        return self._run(self._schemas.versions(subject))

    def subjects(self) -> list[Subject]:
        return self._run(self._schemas.subjects())

    def check(
        self,
        subject: str,
        definition: str | bytes,
        type: str,  # noqa: A002
        *,
        mode: str | None = None,
        references: Iterable[SchemaReference] = (),
    ) -> list[str]:
        return self._run(self._schemas.check(subject, definition, type, mode=mode, references=references))

    def set_mode(self, subject: str, mode: str) -> None:
        self._run(self._schemas.set_mode(subject, mode))

    def delete_version(self, subject: str, version: int) -> None:
        self._run(self._schemas.delete_version(subject, version))

    def configure_topic(
        self, topic: str, subject: str, *, policy: str = "enforce", payloads: bool = True
    ) -> None:
        self._run(self._schemas.configure_topic(topic, subject, policy=policy, payloads=payloads))

    def set_topic_policy(self, topic: str, policy: str, *, payloads: bool = True) -> None:
        self._run(self._schemas.set_topic_policy(topic, policy, payloads=payloads))

    def topic_config(self, topic: str) -> TopicSchema:
        return self._run(self._schemas.topic_config(topic))

    def resolve(self, schema: AnySchema) -> tuple[int, int]:
        return self._run(self._schemas.resolve(schema))

    def codec(self, schema: AnySchema) -> Codec:
        return self._run(self._schemas.codec(schema))

    def decode(self, message: Message) -> Any:
        return self._run(self._schemas.decode(message))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._loop().run(work)
