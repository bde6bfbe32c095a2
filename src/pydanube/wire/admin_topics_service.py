"""danube_admin.TopicAdmin: topics and their subscriptions, as the published tools manage them."""

from typing import Final

from google.protobuf.message import Message

from pydanube.broker.administration import Administration
from pydanube.broker.topic import Topic
from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import BackoffStrategy, DispatchStrategy, FailurePolicy, PoisonPolicy
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.schemas.registry import RegisteredSchema, SchemaRegistry
from pydanube.wire.admin_brokers_service import Registration, cluster_only
from pydanube.wire.admin_calls import Method, methods, refused_as_not_found
from pydanube.wire.calls import parse

DELAY_MS_MAX: Final = 100 * 365 * 24 * 60 * 60 * 1000
"""A hundred years: who asks for more means for ever."""

_DELIVERY: Final = {DispatchStrategy.RELIABLE: "Reliable", DispatchStrategy.NON_RELIABLE: "NonReliable"}
_BACKOFF: Final = {pb.Fixed: BackoffStrategy.FIXED, pb.Exponential: BackoffStrategy.EXPONENTIAL}
_POISON: Final = {
    pb.DeadLetter: PoisonPolicy.DEAD_LETTER,
    pb.Block: PoisonPolicy.BLOCK,
    pb.Drop: PoisonPolicy.DROP,
}
_BACKOFF_NUMBER: Final = {strategy: number for number, strategy in _BACKOFF.items()}
_POISON_NUMBER: Final = {policy: number for number, policy in _POISON.items()}


class AdminTopicsService:
    def __init__(
        self,
        administration: Administration,
        registration: Registration,
        registry: SchemaRegistry,
    ) -> None:
        self._topics = administration.topics
        self._subscriptions = administration.subscriptions
        self._broker_id = str(registration.broker_id)
        self._registry = registry

    def methods(self) -> dict[str, Method]:
        return methods(
            "danube_admin.TopicAdmin",
            {
                "ListNamespaceTopics": self.list_namespace_topics,
                "ListBrokerTopics": self.list_broker_topics,
                "CreateTopic": self.create_topic,
                "CreatePartitionedTopic": self.create_partitioned_topic,
                "DeleteTopic": self.delete_topic,
                "UnloadTopic": self.unload_topic,
                "ListSubscriptions": self.list_subscriptions,
                "Unsubscribe": self.unsubscribe,
                "SetSubscriptionFailurePolicy": self.set_failure_policy,
                "GetSubscriptionFailurePolicy": self.get_failure_policy,
                "DescribeTopic": self.describe_topic,
                "SetSubscriptionDispatchConfig": self.set_dispatch_config,
                "GetSubscriptionDispatchConfig": self.get_dispatch_config,
            },
        )

    # Topics

    async def list_namespace_topics(self, body: bytes) -> Message:
        namespace = parse(pb.NamespaceRequest, body).name
        topics = [self._info(topic) for topic in self._topics.of_namespace(namespace)]
        return pb.TopicInfoListResponse(topics=topics)

    async def list_broker_topics(self, body: bytes) -> Message:
        is_here = parse(pb.BrokerRequest, body).broker_id == self._broker_id
        topics = [self._info(topic) for topic in self._topics.all()] if is_here else []
        return pb.TopicInfoListResponse(topics=topics)

    async def create_topic(self, body: bytes) -> Message:
        request = parse(pb.NewTopicRequest, body)
        dispatch = _dispatch(request.dispatch_strategy)
        with refused_as_not_found():
            await self._topics.create(TopicName.parse(request.name), dispatch, request.schema_subject or None)
        return pb.TopicResponse(success=True)

    async def create_partitioned_topic(self, body: bytes) -> Message:
        request = parse(pb.PartitionedTopicRequest, body)
        dispatch = _dispatch(request.dispatch_strategy)
        with refused_as_not_found():
            await self._topics.create_partitioned(
                TopicName.parse(request.base_name),
                request.partitions,
                dispatch,
                request.schema_subject or None,
            )
        return pb.TopicResponse(success=True)

    async def delete_topic(self, body: bytes) -> Message:
        request = parse(pb.TopicRequest, body)
        with refused_as_not_found():
            await self._topics.delete(TopicName.parse(request.name))
        return pb.TopicResponse(success=True)

    async def unload_topic(self, body: bytes) -> Message:
        raise cluster_only("no other broker could take the topic")

    async def describe_topic(self, body: bytes) -> Message:
        name = parse(pb.DescribeTopicRequest, body).name
        topic = self._topics.find(name)
        if topic is None:
            return pb.DescribeTopicResponse(name=name)
        answer = pb.DescribeTopicResponse(
            name=name,
            subscriptions=sorted(topic.subscriptions),
            broker_id=self._broker_id,
            delivery=_DELIVERY[topic.dispatch],
        )
        subject = topic.schema.subject
        if subject:
            answer.schema_subject = subject
            schema = await self._latest(subject)
            if schema is not None:
                answer.schema_id = schema.schema_id
                answer.schema_version = schema.record.version
                answer.schema_type = schema.record.schema_type.value
                answer.compatibility_mode = schema.mode.value.upper()
        return answer

    async def _latest(self, subject: str) -> RegisteredSchema | None:
        """None for a subject nobody registered: a topic may be bound to one to come."""
        try:
            return await self._registry.latest(subject)
        except Rejected:
            return None

    def _info(self, topic: Topic) -> pb.TopicInfo:
        return pb.TopicInfo(name=topic.text, broker_id=self._broker_id, delivery=_DELIVERY[topic.dispatch])

    # Subscriptions

    async def list_subscriptions(self, body: bytes) -> Message:
        topic = self._topics.find(parse(pb.TopicRequest, body).name)
        return pb.SubscriptionListResponse(subscriptions=sorted(topic.subscriptions) if topic else [])

    async def unsubscribe(self, body: bytes) -> Message:
        request = parse(pb.SubscriptionRequest, body)
        with refused_as_not_found():
            topic = self._topics.get(TopicName.parse(request.topic))
            await self._subscriptions.unsubscribe(topic, request.subscription)
        return pb.SubscriptionResponse(success=True)

    async def set_failure_policy(self, body: bytes) -> Message:
        request = parse(pb.SetSubscriptionFailurePolicyRequest, body)
        if not request.HasField("failure_policy"):
            raise Rejected("failure_policy is missing: what is to be done with failed messages?")
        policy = _failure_policy(request.failure_policy)
        await self._subscriptions.set_failure_policy(
            TopicName.parse(request.topic), request.subscription, policy
        )
        return pb.SubscriptionResponse(success=True)

    async def get_failure_policy(self, body: bytes) -> Message:
        request = parse(pb.GetSubscriptionFailurePolicyRequest, body)
        answer = pb.GetSubscriptionFailurePolicyResponse()
        topic = self._topics.find(request.topic)
        subscription = topic.subscriptions.get(request.subscription) if topic else None
        if subscription is not None:
            answer.subscription_type = subscription.kind
        policy = await self._subscriptions.failure_policy(
            TopicName.parse(request.topic), request.subscription
        )
        if policy is not None:
            answer.failure_policy.CopyFrom(_failure_message(policy))
        return answer

    async def set_dispatch_config(self, body: bytes) -> Message:
        request = parse(pb.SetSubscriptionDispatchConfigRequest, body)
        if not request.HasField("dispatch_config"):
            raise Rejected("dispatch_config is missing: how many messages may be unacknowledged?")
        await self._subscriptions.set_window(
            TopicName.parse(request.topic),
            request.subscription,
            request.dispatch_config.max_unacked_messages,
        )
        return pb.SubscriptionResponse(success=True)

    async def get_dispatch_config(self, body: bytes) -> Message:
        request = parse(pb.GetSubscriptionDispatchConfigRequest, body)
        window = await self._subscriptions.window(TopicName.parse(request.topic), request.subscription)
        if window is None:
            return pb.GetSubscriptionDispatchConfigResponse()
        config = pb.SubscriptionDispatchConfig(max_unacked_messages=window)
        return pb.GetSubscriptionDispatchConfigResponse(dispatch_config=config)


def _dispatch(number: int) -> DispatchStrategy:
    try:
        return DispatchStrategy(number)
    except ValueError:
        raise Rejected(f"unknown dispatch strategy {number}: 0 is non-reliable, 1 is reliable") from None


def _failure_policy(message: pb.SubscriptionFailurePolicy) -> FailurePolicy:
    backoff = _BACKOFF.get(message.backoff_strategy)
    if backoff is None:
        raise Rejected(f"unknown backoff strategy {message.backoff_strategy}: 0 is fixed, 1 is exponential")
    poison = _POISON.get(message.poison_policy)
    if poison is None:
        raise Rejected(
            f"unknown poison policy {message.poison_policy}: 0 is dead letter, 1 is block, 2 is drop"
        )
    dead_letter_topic = message.dead_letter_topic.strip()
    if dead_letter_topic:
        TopicName.parse(dead_letter_topic)
    elif poison is PoisonPolicy.DEAD_LETTER:
        raise Rejected("dead_letter_topic is missing: where are messages to go that failed too often?")
    if message.ack_timeout_ms == 0:
        raise Rejected("ack_timeout_ms is 0: every message would fail as soon as it is sent")
    return FailurePolicy(
        max_redelivery_count=message.max_redelivery_count,
        ack_timeout_ms=min(message.ack_timeout_ms, DELAY_MS_MAX),
        base_redelivery_delay_ms=min(message.base_redelivery_delay_ms, DELAY_MS_MAX),
        max_redelivery_delay_ms=min(message.max_redelivery_delay_ms, DELAY_MS_MAX),
        backoff_strategy=backoff,
        dead_letter_topic=dead_letter_topic or None,
        poison_policy=poison,
    )


def _failure_message(policy: FailurePolicy) -> pb.SubscriptionFailurePolicy:
    return pb.SubscriptionFailurePolicy(
        max_redelivery_count=policy.max_redelivery_count,
        ack_timeout_ms=policy.ack_timeout_ms,
        base_redelivery_delay_ms=policy.base_redelivery_delay_ms,
        max_redelivery_delay_ms=policy.max_redelivery_delay_ms,
        backoff_strategy=_BACKOFF_NUMBER[policy.backoff_strategy],
        dead_letter_topic=policy.dead_letter_topic,
        poison_policy=_POISON_NUMBER[policy.poison_policy],
    )
