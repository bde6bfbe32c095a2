"""What an operator may ask of namespaces: which there are, making and deleting them, their policies."""

import asyncio
from collections.abc import Mapping

import structlog
from msgspec.structs import replace

from pydanube.broker import facts
from pydanube.broker.broker import Broker
from pydanube.broker.unbroken import unbroken
from pydanube.kernel.errors import Conflict, ErrorCode, Rejected
from pydanube.kernel.names import check_namespace
from pydanube.kernel.policies import Policies
from pydanube.metadata.store import ABSENT, MetadataStore, VersionMismatch

log = structlog.get_logger("pydanube.broker")

UNLIMITED = Policies(max_message_size=0)
"""What a new namespace has: the broker's configured policies are those of the namespaces it makes itself."""


class NamespaceControl:
    def __init__(self, broker: Broker, store: MetadataStore) -> None:
        self._topics = broker.topics
        self._maker = broker.maker
        self._store = store
        self._changing = asyncio.Lock()

    def names(self) -> list[str]:
        return sorted(self._maker.namespaces)

    def policies(self, namespace: str) -> Policies:
        try:
            return self._maker.namespaces[namespace]
        except KeyError:
            raise _unknown(namespace) from None

    @unbroken
    async def create(self, namespace: str) -> None:
        check_namespace(namespace)
        async with self._changing:
            try:
                key = facts.namespace_policy_key(namespace)
                await self._store.put(key, facts.encode(UNLIMITED), expected_version=ABSENT)
            except VersionMismatch as error:
                raise Conflict(
                    f"namespace {namespace!r} exists already", ErrorCode.NAMESPACE_CONFLICT
                ) from error
            self._maker.namespaces[namespace] = UNLIMITED
        log.info("namespace created", namespace=namespace)

    @unbroken
    async def delete(self, namespace: str) -> None:
        """Only one without topics, and none that would be made again at the next start."""
        async with self._changing:
            policies = self.policies(namespace)
            self._check_unused(namespace)
            # From here on nobody makes a topic in it.
            del self._maker.namespaces[namespace]
            try:
                await self._store.delete(facts.namespace_policy_key(namespace))
            except BaseException:
                self._maker.namespaces[namespace] = policies
                raise
        log.info("namespace deleted", namespace=namespace)

    @unbroken
    async def set_policies(self, namespace: str, changes: Mapping[str, int]) -> Policies:
        """Change some of the policies, for every topic that has none of its own; returns all of them."""
        async with self._changing:
            policies = replace(self.policies(namespace), **changes)
            await self._store.put(facts.namespace_policy_key(namespace), facts.encode(policies))
            self._maker.namespaces[namespace] = policies
            for topic in self._topics:
                if topic.name.namespace == namespace and not topic.has_own_policies:
                    topic.set_policies(policies)
        log.info("namespace policies changed", namespace=namespace, **changes)
        return policies

    def _check_unused(self, namespace: str) -> None:
        if namespace in self._maker.needed_namespaces:
            raise Conflict(
                f"namespace {namespace!r} has to exist: it would be made again at the next start",
                ErrorCode.NAMESPACE_IN_USE,
            )
        topics = sum(topic.name.namespace == namespace for topic in self._topics)
        if topics or self._maker.is_making_in(namespace):
            raise Conflict(
                f"namespace {namespace!r} has {topics or 'new'} topics: delete them first",
                ErrorCode.NAMESPACE_IN_USE,
            )


def _unknown(namespace: str) -> Rejected:
    return Rejected(f"namespace {namespace!r} not found", ErrorCode.NAMESPACE_UNKNOWN)
