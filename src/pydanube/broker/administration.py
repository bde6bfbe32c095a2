"""What an operator may ask of a broker, apart from its storage: see `storage_control.py` for that."""

from dataclasses import dataclass

import msgspec

from pydanube.broker import facts
from pydanube.broker.broker import Broker
from pydanube.broker.facts import BrokerState
from pydanube.broker.namespace_control import NamespaceControl
from pydanube.broker.subscription_control import SubscriptionControl
from pydanube.broker.topic_control import TopicControl
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import check_name
from pydanube.metadata.store import MetadataStore


class BrokerStates:
    """Which brokers take topics."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store

    async def get(self, broker_id: str) -> BrokerState:
        """A broker nobody said anything about takes topics."""
        entry = await self._store.get(facts.broker_state_key(broker_id))
        if entry is None:
            return BrokerState()
        try:
            return facts.decode(entry, BrokerState)
        except msgspec.DecodeError:
            return BrokerState()

    async def activate(self, broker_id: str, reason: str) -> None:
        if not broker_id:
            raise Rejected("broker_id is empty: which broker is to be activated?")
        state = BrokerState(mode="active", reason=reason)
        await self._store.put(
            facts.broker_state_key(check_name(broker_id, what="broker id")), facts.encode(state)
        )

    async def revision(self) -> int:
        """How many changes of facts there were."""
        return await self._store.revision()


@dataclass(frozen=True, slots=True)
class Administration:
    brokers: BrokerStates
    namespaces: NamespaceControl
    topics: TopicControl
    subscriptions: SubscriptionControl

    @classmethod
    def of(cls, broker: Broker, store: MetadataStore, clock: Clock) -> "Administration":
        return cls(
            BrokerStates(store),
            NamespaceControl(broker, store),
            TopicControl(broker, store),
            SubscriptionControl(broker, store, clock),
        )
