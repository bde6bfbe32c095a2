from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCLUSIVE: _ClassVar[SubscriptionType]
    SHARED: _ClassVar[SubscriptionType]
    FAILOVER: _ClassVar[SubscriptionType]
    KEY_SHARED: _ClassVar[SubscriptionType]
EXCLUSIVE: SubscriptionType
SHARED: SubscriptionType
FAILOVER: SubscriptionType
KEY_SHARED: SubscriptionType

class Policies(_message.Message):
    __slots__ = ("max_producers_per_topic", "max_subscriptions_per_topic", "max_consumers_per_topic", "max_consumers_per_subscription", "max_publish_rate", "max_subscription_dispatch_rate", "max_message_size")
    MAX_PRODUCERS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBSCRIPTIONS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_CONSUMERS_PER_TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_CONSUMERS_PER_SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    MAX_PUBLISH_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_SUBSCRIPTION_DISPATCH_RATE_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_SIZE_FIELD_NUMBER: _ClassVar[int]
    max_producers_per_topic: int
    max_subscriptions_per_topic: int
    max_consumers_per_topic: int
    max_consumers_per_subscription: int
    max_publish_rate: int
    max_subscription_dispatch_rate: int
    max_message_size: int
    def __init__(self, max_producers_per_topic: _Optional[int] = ..., max_subscriptions_per_topic: _Optional[int] = ..., max_consumers_per_topic: _Optional[int] = ..., max_consumers_per_subscription: _Optional[int] = ..., max_publish_rate: _Optional[int] = ..., max_subscription_dispatch_rate: _Optional[int] = ..., max_message_size: _Optional[int] = ...) -> None: ...

class SetNamespacePoliciesRequest(_message.Message):
    __slots__ = ("namespace", "policies")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    policies: Policies
    def __init__(self, namespace: _Optional[str] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ...) -> None: ...

class SetNamespacePoliciesResponse(_message.Message):
    __slots__ = ("policies",)
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    policies: Policies
    def __init__(self, policies: _Optional[_Union[Policies, _Mapping]] = ...) -> None: ...

class SetTopicPoliciesRequest(_message.Message):
    __slots__ = ("topic", "policies", "inherit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    INHERIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    policies: Policies
    inherit: bool
    def __init__(self, topic: _Optional[str] = ..., policies: _Optional[_Union[Policies, _Mapping]] = ..., inherit: _Optional[bool] = ...) -> None: ...

class SetTopicPoliciesResponse(_message.Message):
    __slots__ = ("policies", "inherited")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    INHERITED_FIELD_NUMBER: _ClassVar[int]
    policies: Policies
    inherited: bool
    def __init__(self, policies: _Optional[_Union[Policies, _Mapping]] = ..., inherited: _Optional[bool] = ...) -> None: ...

class GetTopicPoliciesRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class GetTopicPoliciesResponse(_message.Message):
    __slots__ = ("policies", "inherited")
    POLICIES_FIELD_NUMBER: _ClassVar[int]
    INHERITED_FIELD_NUMBER: _ClassVar[int]
    policies: Policies
    inherited: bool
    def __init__(self, policies: _Optional[_Union[Policies, _Mapping]] = ..., inherited: _Optional[bool] = ...) -> None: ...

class TopicStatsRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class TopicStatsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[TopicFigures]
    def __init__(self, topics: _Optional[_Iterable[_Union[TopicFigures, _Mapping]]] = ...) -> None: ...

class TopicFigures(_message.Message):
    __slots__ = ("topic", "reliable", "messages_in", "bytes_in", "messages_out", "bytes_out", "refused", "producers", "consumers", "start_offset", "next_offset", "backlog", "subscriptions", "producer_list")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    RELIABLE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_IN_FIELD_NUMBER: _ClassVar[int]
    BYTES_IN_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    PRODUCERS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    BACKLOG_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_LIST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    reliable: bool
    messages_in: int
    bytes_in: int
    messages_out: int
    bytes_out: int
    refused: _containers.ScalarMap[str, int]
    producers: int
    consumers: int
    start_offset: int
    next_offset: int
    backlog: int
    subscriptions: _containers.RepeatedCompositeFieldContainer[SubscriptionFigures]
    producer_list: _containers.RepeatedCompositeFieldContainer[ProducerFigures]
    def __init__(self, topic: _Optional[str] = ..., reliable: _Optional[bool] = ..., messages_in: _Optional[int] = ..., bytes_in: _Optional[int] = ..., messages_out: _Optional[int] = ..., bytes_out: _Optional[int] = ..., refused: _Optional[_Mapping[str, int]] = ..., producers: _Optional[int] = ..., consumers: _Optional[int] = ..., start_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., backlog: _Optional[int] = ..., subscriptions: _Optional[_Iterable[_Union[SubscriptionFigures, _Mapping]]] = ..., producer_list: _Optional[_Iterable[_Union[ProducerFigures, _Mapping]]] = ...) -> None: ...

class ProducerFigures(_message.Message):
    __slots__ = ("producer_id", "name", "alive", "exclusive", "messages")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ALIVE_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    name: str
    alive: bool
    exclusive: bool
    messages: int
    def __init__(self, producer_id: _Optional[int] = ..., name: _Optional[str] = ..., alive: _Optional[bool] = ..., exclusive: _Optional[bool] = ..., messages: _Optional[int] = ...) -> None: ...

class SubscriptionFigures(_message.Message):
    __slots__ = ("name", "type", "next_offset", "lag", "unacked", "consumers", "messages_out", "bytes_out", "blocked")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    UNACKED_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_OUT_FIELD_NUMBER: _ClassVar[int]
    BYTES_OUT_FIELD_NUMBER: _ClassVar[int]
    BLOCKED_FIELD_NUMBER: _ClassVar[int]
    name: str
    type: SubscriptionType
    next_offset: int
    lag: int
    unacked: int
    consumers: int
    messages_out: int
    bytes_out: int
    blocked: bool
    def __init__(self, name: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., next_offset: _Optional[int] = ..., lag: _Optional[int] = ..., unacked: _Optional[int] = ..., consumers: _Optional[int] = ..., messages_out: _Optional[int] = ..., bytes_out: _Optional[int] = ..., blocked: _Optional[bool] = ...) -> None: ...

class DescribeSubscriptionRequest(_message.Message):
    __slots__ = ("topic", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class DescribeSubscriptionResponse(_message.Message):
    __slots__ = ("topic", "figures", "consumers", "max_unacked_messages", "pending_redelivery", "delayed", "counters")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FIGURES_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    MAX_UNACKED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    PENDING_REDELIVERY_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    figures: SubscriptionFigures
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerFigures]
    max_unacked_messages: int
    pending_redelivery: int
    delayed: int
    counters: _containers.ScalarMap[str, int]
    def __init__(self, topic: _Optional[str] = ..., figures: _Optional[_Union[SubscriptionFigures, _Mapping]] = ..., consumers: _Optional[_Iterable[_Union[ConsumerFigures, _Mapping]]] = ..., max_unacked_messages: _Optional[int] = ..., pending_redelivery: _Optional[int] = ..., delayed: _Optional[int] = ..., counters: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ConsumerFigures(_message.Message):
    __slots__ = ("consumer_id", "name", "connected", "unacked", "key_filters")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    UNACKED_FIELD_NUMBER: _ClassVar[int]
    KEY_FILTERS_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    name: str
    connected: bool
    unacked: int
    key_filters: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, consumer_id: _Optional[int] = ..., name: _Optional[str] = ..., connected: _Optional[bool] = ..., unacked: _Optional[int] = ..., key_filters: _Optional[_Iterable[str]] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("kind", "value")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        EARLIEST: _ClassVar[Position.Kind]
        LATEST: _ClassVar[Position.Kind]
        OFFSET: _ClassVar[Position.Kind]
        TIMESTAMP: _ClassVar[Position.Kind]
    EARLIEST: Position.Kind
    LATEST: Position.Kind
    OFFSET: Position.Kind
    TIMESTAMP: Position.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: Position.Kind
    value: int
    def __init__(self, kind: _Optional[_Union[Position.Kind, str]] = ..., value: _Optional[int] = ...) -> None: ...

class ResetCursorRequest(_message.Message):
    __slots__ = ("topic", "subscription", "position")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    position: Position
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class ResetCursorResponse(_message.Message):
    __slots__ = ("next_offset", "lag")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LAG_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    lag: int
    def __init__(self, next_offset: _Optional[int] = ..., lag: _Optional[int] = ...) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("topic", "subscription")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("skipped", "subscriptions")
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    skipped: int
    subscriptions: int
    def __init__(self, skipped: _Optional[int] = ..., subscriptions: _Optional[int] = ...) -> None: ...

class PeekMessagesRequest(_message.Message):
    __slots__ = ("topic", "position", "subscription", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    position: Position
    subscription: str
    limit: int
    def __init__(self, topic: _Optional[str] = ..., position: _Optional[_Union[Position, _Mapping]] = ..., subscription: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class PeekMessagesResponse(_message.Message):
    __slots__ = ("messages", "next_offset", "end_offset")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PeekedMessage]
    next_offset: int
    end_offset: int
    def __init__(self, messages: _Optional[_Iterable[_Union[PeekedMessage, _Mapping]]] = ..., next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class PeekedMessage(_message.Message):
    __slots__ = ("offset", "append_ms", "message")
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    APPEND_MS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    offset: int
    append_ms: int
    message: bytes
    def __init__(self, offset: _Optional[int] = ..., append_ms: _Optional[int] = ..., message: _Optional[bytes] = ...) -> None: ...

class SchemaReference(_message.Message):
    __slots__ = ("name", "subject", "version")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    name: str
    subject: str
    version: int
    def __init__(self, name: _Optional[str] = ..., subject: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class RegisterSchemaWithReferencesRequest(_message.Message):
    __slots__ = ("subject", "schema_type", "schema_definition", "references", "description", "created_by", "tags")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_DEFINITION_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    DESCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CREATED_BY_FIELD_NUMBER: _ClassVar[int]
    TAGS_FIELD_NUMBER: _ClassVar[int]
    subject: str
    schema_type: str
    schema_definition: bytes
    references: _containers.RepeatedCompositeFieldContainer[SchemaReference]
    description: str
    created_by: str
    tags: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, subject: _Optional[str] = ..., schema_type: _Optional[str] = ..., schema_definition: _Optional[bytes] = ..., references: _Optional[_Iterable[_Union[SchemaReference, _Mapping]]] = ..., description: _Optional[str] = ..., created_by: _Optional[str] = ..., tags: _Optional[_Iterable[str]] = ...) -> None: ...

class RegisterSchemaWithReferencesResponse(_message.Message):
    __slots__ = ("schema_id", "version", "is_new_version", "fingerprint")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    IS_NEW_VERSION_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    version: int
    is_new_version: bool
    fingerprint: str
    def __init__(self, schema_id: _Optional[int] = ..., version: _Optional[int] = ..., is_new_version: _Optional[bool] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class CheckSchemaWithReferencesRequest(_message.Message):
    __slots__ = ("subject", "schema_type", "schema_definition", "references", "compatibility_mode")
    SUBJECT_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_TYPE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_DEFINITION_FIELD_NUMBER: _ClassVar[int]
    REFERENCES_FIELD_NUMBER: _ClassVar[int]
    COMPATIBILITY_MODE_FIELD_NUMBER: _ClassVar[int]
    subject: str
    schema_type: str
    schema_definition: bytes
    references: _containers.RepeatedCompositeFieldContainer[SchemaReference]
    compatibility_mode: str
    def __init__(self, subject: _Optional[str] = ..., schema_type: _Optional[str] = ..., schema_definition: _Optional[bytes] = ..., references: _Optional[_Iterable[_Union[SchemaReference, _Mapping]]] = ..., compatibility_mode: _Optional[str] = ...) -> None: ...

class CheckSchemaWithReferencesResponse(_message.Message):
    __slots__ = ("errors",)
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    errors: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, errors: _Optional[_Iterable[str]] = ...) -> None: ...

class GetSchemaReferencesRequest(_message.Message):
    __slots__ = ("schema_id", "version")
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    schema_id: int
    version: int
    def __init__(self, schema_id: _Optional[int] = ..., version: _Optional[int] = ...) -> None: ...

class GetSchemaReferencesResponse(_message.Message):
    __slots__ = ("schemas",)
    SCHEMAS_FIELD_NUMBER: _ClassVar[int]
    schemas: _containers.RepeatedCompositeFieldContainer[ReferencedSchema]
    def __init__(self, schemas: _Optional[_Iterable[_Union[ReferencedSchema, _Mapping]]] = ...) -> None: ...

class ReferencedSchema(_message.Message):
    __slots__ = ("reference", "definition")
    REFERENCE_FIELD_NUMBER: _ClassVar[int]
    DEFINITION_FIELD_NUMBER: _ClassVar[int]
    reference: SchemaReference
    definition: bytes
    def __init__(self, reference: _Optional[_Union[SchemaReference, _Mapping]] = ..., definition: _Optional[bytes] = ...) -> None: ...
