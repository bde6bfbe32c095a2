"""pydanube.admin.v1.Admin: policies, figures, cursors and a look at stored messages, which danube_admin lacks."""

from itertools import islice
from typing import Final

from google.protobuf.message import Message

from pydanube.broker.administration import Administration
from pydanube.broker.durable_subscription import DurableSubscription
from pydanube.broker.live_subscription import LiveSubscription
from pydanube.broker.reliable_topic import ReliableTopic
from pydanube.broker.sessions import Consumer
from pydanube.broker.subscription import Subscription
from pydanube.broker.topic import Topic
from pydanube.dispatch.counters import COUNTER_NAMES
from pydanube.kernel.clock import Clock
from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.kernel.policies import Policies
from pydanube.kernel.positions import Position, PositionKind
from pydanube.protocol import pydanube_admin_pb2 as pb
from pydanube.wire.admin_calls import Method, methods, refused_as_not_found
from pydanube.wire.calls import parse
from pydanube.wire.storage_service import topic_of

PRODUCERS_LISTED_MAX: Final = 1000
VALUE_MAX: Final = 1 << 62
"""No offset and no moment is beyond it."""

_KINDS: Final = {
    pb.Position.EARLIEST: PositionKind.EARLIEST,
    pb.Position.LATEST: PositionKind.LATEST,
    pb.Position.OFFSET: PositionKind.OFFSET,
    pb.Position.TIMESTAMP: PositionKind.TIMESTAMP,
}


class PydanubeAdminService:
    def __init__(self, administration: Administration, clock: Clock) -> None:
        self._namespaces = administration.namespaces
        self._topics = administration.topics
        self._subscriptions = administration.subscriptions
        self._clock = clock

    def methods(self) -> dict[str, Method]:
        return methods(
            "pydanube.admin.v1.Admin",
            {
                "SetNamespacePolicies": self.set_namespace_policies,
                "SetTopicPolicies": self.set_topic_policies,
                "GetTopicPolicies": self.get_topic_policies,
                "TopicStats": self.topic_stats,
                "DescribeSubscription": self.describe_subscription,
                "ResetCursor": self.reset_cursor,
                "Purge": self.purge,
                "PeekMessages": self.peek_messages,
            },
        )

    # Policies

    async def set_namespace_policies(self, body: bytes) -> Message:
        request = parse(pb.SetNamespacePoliciesRequest, body)
        policies = await self._namespaces.set_policies(request.namespace, _given(request.policies))
        return pb.SetNamespacePoliciesResponse(policies=_policies(policies))

    async def set_topic_policies(self, body: bytes) -> Message:
        request = parse(pb.SetTopicPoliciesRequest, body)
        name = topic_of(request.topic)
        if request.inherit:
            if request.HasField("policies"):
                raise Rejected("policies and inherit exclude each other: give one of them")
            policies = await self._topics.inherit_policies(name)
        else:
            policies = await self._topics.set_policies(name, _given(request.policies))
        return pb.SetTopicPoliciesResponse(policies=_policies(policies), inherited=request.inherit)

    async def get_topic_policies(self, body: bytes) -> Message:
        topic = self._topics.get(topic_of(parse(pb.GetTopicPoliciesRequest, body).topic))
        return pb.GetTopicPoliciesResponse(
            policies=_policies(topic.policies), inherited=not topic.has_own_policies
        )

    # Figures

    async def topic_stats(self, body: bytes) -> Message:
        topics = self._topics.partitions(topic_of(parse(pb.TopicStatsRequest, body).topic))
        now_ms = self._clock.monotonic_ms()
        return pb.TopicStatsResponse(topics=[_topic_figures(topic, now_ms) for topic in topics])

    async def describe_subscription(self, body: bytes) -> Message:
        request = parse(pb.DescribeSubscriptionRequest, body)
        topic, subscription = self._find(request.topic, request.subscription)
        answer = pb.DescribeSubscriptionResponse(
            topic=topic.text,
            figures=_subscription_figures(subscription),
            consumers=[_consumer_figures(consumer) for consumer in subscription.consumers.values()],
        )
        if isinstance(subscription, DurableSubscription):
            machine = subscription.machine
            answer.max_unacked_messages = subscription.max_unacked_messages
            answer.pending_redelivery = machine.pending_redelivery
            answer.delayed = machine.delayed
            answer.counters.update({name: getattr(machine.counters, name) for name in COUNTER_NAMES})
        elif isinstance(subscription, LiveSubscription):
            live = subscription.machine
            answer.counters.update(
                {"delivered": live.delivered, "dropped": live.dropped, "filtered": live.filtered}
            )
        return answer

    # Cursors

    async def reset_cursor(self, body: bytes) -> Message:
        request = parse(pb.ResetCursorRequest, body)
        if not request.HasField("position"):
            raise Rejected("position is missing: where is the subscription to go on?")
        topic, subscription = self._find(request.topic, request.subscription)
        moved = await self._subscriptions.move(topic, subscription.name, _position(request.position))
        return pb.ResetCursorResponse(next_offset=moved.next_offset, lag=moved.lag)

    async def purge(self, body: bytes) -> Message:
        request = parse(pb.PurgeRequest, body)
        topic = self._topics.get(topic_of(request.topic))
        if request.subscription:
            self._find(request.topic, request.subscription)
        purged = await self._subscriptions.purge(topic, request.subscription or None)
        return pb.PurgeResponse(skipped=purged.messages, subscriptions=purged.subscriptions)

    async def peek_messages(self, body: bytes) -> Message:
        request = parse(pb.PeekMessagesRequest, body)
        topic = self._topics.get(topic_of(request.topic))
        if not isinstance(topic, ReliableTopic):
            raise Rejected(
                f"topic {topic.text} is non-reliable: it keeps nothing that could be looked at",
                ErrorCode.DISPATCH_MISMATCH,
            )
        if request.WhichOneof("start") == "subscription":
            subscription = self._find(request.topic, request.subscription)[1]
            position = Position(PositionKind.OFFSET, subscription.next_offset)
        else:
            position = _position(request.position)
        offset = await topic.find(position)
        found = await self._topics.peek(topic, offset, request.limit or 1)
        return pb.PeekMessagesResponse(
            messages=[
                pb.PeekedMessage(offset=each.offset, append_ms=each.append_ms, message=each.message)
                for each in found
            ],
            next_offset=found[-1].offset + 1 if found else offset,
            end_offset=topic.log.committed_end,
        )

    def _find(self, topic_name: str, name: str) -> tuple[Topic, Subscription]:
        topic = self._topics.get(topic_of(topic_name))
        with refused_as_not_found():
            return topic, self._subscriptions.get(topic, name)


def _given(message: pb.Policies) -> dict[str, int]:
    changes: dict[str, int] = {field.name: value for field, value in message.ListFields()}
    if not changes:
        raise Rejected(f"no policy is given: set one of {', '.join(Policies.__struct_fields__)}")
    return changes


def _policies(policies: Policies) -> pb.Policies:
    return pb.Policies(**{name: getattr(policies, name) for name in Policies.__struct_fields__})


def _position(message: pb.Position) -> Position:
    kind = _KINDS.get(message.kind)
    if kind is None:
        raise Rejected(f"unknown kind of position {message.kind}: 0 to {max(_KINDS)}")
    return Position(kind, min(message.value, VALUE_MAX))


def _topic_figures(topic: Topic, now_ms: int) -> pb.TopicFigures:
    figures = pb.TopicFigures(
        topic=topic.text,
        reliable=isinstance(topic, ReliableTopic),
        messages_in=topic.messages_in,
        bytes_in=topic.bytes_in,
        messages_out=sum(each.messages_out for each in topic.subscriptions.values()),
        bytes_out=sum(each.bytes_out for each in topic.subscriptions.values()),
        refused=topic.refused,
        producers=sum(producer.is_live(now_ms) for producer in topic.producers.values()),
        consumers=sum(consumer.session is not None for consumer in topic.consumers()),
        subscriptions=[
            _subscription_figures(topic.subscriptions[name]) for name in sorted(topic.subscriptions)
        ],
        producer_list=[
            pb.ProducerFigures(
                producer_id=producer.id,
                name=producer.name,
                alive=producer.is_live(now_ms),
                exclusive=producer.exclusive,
                messages=producer.sent,
            )
            for producer in islice(topic.producers.values(), PRODUCERS_LISTED_MAX)
        ],
    )
    if isinstance(topic, ReliableTopic):
        figures.start_offset = topic.log.start_offset
        figures.next_offset = topic.log.committed_end
        figures.backlog = max((each.lag for each in topic.durable), default=0)
    return figures


def _subscription_figures(subscription: Subscription) -> pb.SubscriptionFigures:
    figures = pb.SubscriptionFigures(
        name=subscription.name,
        type=pb.SubscriptionType.Name(subscription.kind),
        consumers=sum(consumer.session is not None for consumer in subscription.consumers.values()),
        messages_out=subscription.messages_out,
        bytes_out=subscription.bytes_out,
    )
    if isinstance(subscription, DurableSubscription):
        figures.next_offset = subscription.next_offset
        figures.lag = max(subscription.lag, 0)
        figures.unacked = subscription.machine.outstanding
        figures.blocked = subscription.machine.blocked > 0
    return figures


def _consumer_figures(consumer: Consumer) -> pb.ConsumerFigures:
    subscription = consumer.subscription
    figures = pb.ConsumerFigures(
        consumer_id=consumer.id,
        name=consumer.name,
        connected=consumer.session is not None,
        key_filters=consumer.key_filters,
    )
    if isinstance(subscription, DurableSubscription):
        figures.unacked = subscription.machine.outstanding_of(consumer.id)
    return figures
