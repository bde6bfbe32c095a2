from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Dispatch(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    NON_RELIABLE: _ClassVar[Dispatch]
    RELIABLE: _ClassVar[Dispatch]

class SubscriptionType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    EXCLUSIVE: _ClassVar[SubscriptionType]
    SHARED: _ClassVar[SubscriptionType]
    FAILOVER: _ClassVar[SubscriptionType]
    KEY_SHARED: _ClassVar[SubscriptionType]
NON_RELIABLE: Dispatch
RELIABLE: Dispatch
EXCLUSIVE: SubscriptionType
SHARED: SubscriptionType
FAILOVER: SubscriptionType
KEY_SHARED: SubscriptionType

class Hello(_message.Message):
    __slots__ = ("version_min", "version_max", "client", "token", "batch_columns")
    VERSION_MIN_FIELD_NUMBER: _ClassVar[int]
    VERSION_MAX_FIELD_NUMBER: _ClassVar[int]
    CLIENT_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    BATCH_COLUMNS_FIELD_NUMBER: _ClassVar[int]
    version_min: int
    version_max: int
    client: str
    token: str
    batch_columns: int
    def __init__(self, version_min: _Optional[int] = ..., version_max: _Optional[int] = ..., client: _Optional[str] = ..., token: _Optional[str] = ..., batch_columns: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("version", "broker", "frame_bytes_max", "publish_window_bytes", "channels_max", "idle_seconds_max", "batch_bytes_max", "batch_messages_max")
    VERSION_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    FRAME_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_WINDOW_BYTES_FIELD_NUMBER: _ClassVar[int]
    CHANNELS_MAX_FIELD_NUMBER: _ClassVar[int]
    IDLE_SECONDS_MAX_FIELD_NUMBER: _ClassVar[int]
    BATCH_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    BATCH_MESSAGES_MAX_FIELD_NUMBER: _ClassVar[int]
    version: int
    broker: str
    frame_bytes_max: int
    publish_window_bytes: int
    channels_max: int
    idle_seconds_max: int
    batch_bytes_max: int
    batch_messages_max: int
    def __init__(self, version: _Optional[int] = ..., broker: _Optional[str] = ..., frame_bytes_max: _Optional[int] = ..., publish_window_bytes: _Optional[int] = ..., channels_max: _Optional[int] = ..., idle_seconds_max: _Optional[int] = ..., batch_bytes_max: _Optional[int] = ..., batch_messages_max: _Optional[int] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "text", "status", "expected_sequence", "connect_url")
    CODE_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    CONNECT_URL_FIELD_NUMBER: _ClassVar[int]
    code: int
    text: str
    status: int
    expected_sequence: int
    connect_url: str
    def __init__(self, code: _Optional[int] = ..., text: _Optional[str] = ..., status: _Optional[int] = ..., expected_sequence: _Optional[int] = ..., connect_url: _Optional[str] = ...) -> None: ...

class Lookup(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class LookedUp(_message.Message):
    __slots__ = ("here", "connect_url", "broker_url", "proxy", "partitions")
    HERE_FIELD_NUMBER: _ClassVar[int]
    CONNECT_URL_FIELD_NUMBER: _ClassVar[int]
    BROKER_URL_FIELD_NUMBER: _ClassVar[int]
    PROXY_FIELD_NUMBER: _ClassVar[int]
    PARTITIONS_FIELD_NUMBER: _ClassVar[int]
    here: bool
    connect_url: str
    broker_url: str
    proxy: bool
    partitions: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, here: _Optional[bool] = ..., connect_url: _Optional[str] = ..., broker_url: _Optional[str] = ..., proxy: _Optional[bool] = ..., partitions: _Optional[_Iterable[str]] = ...) -> None: ...

class OpenProducer(_message.Message):
    __slots__ = ("topic", "name", "dispatch", "exclusive", "schema_subject", "idempotent", "epoch")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    EXCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_SUBJECT_FIELD_NUMBER: _ClassVar[int]
    IDEMPOTENT_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    topic: str
    name: str
    dispatch: Dispatch
    exclusive: bool
    schema_subject: str
    idempotent: bool
    epoch: int
    def __init__(self, topic: _Optional[str] = ..., name: _Optional[str] = ..., dispatch: _Optional[_Union[Dispatch, str]] = ..., exclusive: _Optional[bool] = ..., schema_subject: _Optional[str] = ..., idempotent: _Optional[bool] = ..., epoch: _Optional[int] = ...) -> None: ...

class ProducerOpened(_message.Message):
    __slots__ = ("producer_id", "epoch", "last_sequence", "message_bytes_max")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LAST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_BYTES_MAX_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    epoch: int
    last_sequence: int
    message_bytes_max: int
    def __init__(self, producer_id: _Optional[int] = ..., epoch: _Optional[int] = ..., last_sequence: _Optional[int] = ..., message_bytes_max: _Optional[int] = ...) -> None: ...

class Position(_message.Message):
    __slots__ = ("kind", "value")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        CURSOR: _ClassVar[Position.Kind]
        EARLIEST: _ClassVar[Position.Kind]
        LATEST: _ClassVar[Position.Kind]
        OFFSET: _ClassVar[Position.Kind]
        TIMESTAMP: _ClassVar[Position.Kind]
    CURSOR: Position.Kind
    EARLIEST: Position.Kind
    LATEST: Position.Kind
    OFFSET: Position.Kind
    TIMESTAMP: Position.Kind
    KIND_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    kind: Position.Kind
    value: int
    def __init__(self, kind: _Optional[_Union[Position.Kind, str]] = ..., value: _Optional[int] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("topic", "subscription", "consumer", "type", "key_filters", "start", "unacked_max")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    TYPE_FIELD_NUMBER: _ClassVar[int]
    KEY_FILTERS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    UNACKED_MAX_FIELD_NUMBER: _ClassVar[int]
    topic: str
    subscription: str
    consumer: str
    type: SubscriptionType
    key_filters: _containers.RepeatedScalarFieldContainer[str]
    start: Position
    unacked_max: int
    def __init__(self, topic: _Optional[str] = ..., subscription: _Optional[str] = ..., consumer: _Optional[str] = ..., type: _Optional[_Union[SubscriptionType, str]] = ..., key_filters: _Optional[_Iterable[str]] = ..., start: _Optional[_Union[Position, _Mapping]] = ..., unacked_max: _Optional[int] = ...) -> None: ...

class Subscribed(_message.Message):
    __slots__ = ("consumer_id", "next_offset", "dispatch")
    CONSUMER_ID_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    DISPATCH_FIELD_NUMBER: _ClassVar[int]
    consumer_id: int
    next_offset: int
    dispatch: Dispatch
    def __init__(self, consumer_id: _Optional[int] = ..., next_offset: _Optional[int] = ..., dispatch: _Optional[_Union[Dispatch, str]] = ...) -> None: ...

class OpenReader(_message.Message):
    __slots__ = ("topic", "start", "end")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    topic: str
    start: Position
    end: Position
    def __init__(self, topic: _Optional[str] = ..., start: _Optional[_Union[Position, _Mapping]] = ..., end: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class ReaderOpened(_message.Message):
    __slots__ = ("next_offset", "end_offset")
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    end_offset: int
    def __init__(self, next_offset: _Optional[int] = ..., end_offset: _Optional[int] = ...) -> None: ...

class Nack(_message.Message):
    __slots__ = ("ranges", "delay_ms", "reason")
    RANGES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    ranges: _containers.RepeatedCompositeFieldContainer[Range]
    delay_ms: int
    reason: str
    def __init__(self, ranges: _Optional[_Iterable[_Union[Range, _Mapping]]] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Range(_message.Message):
    __slots__ = ("first", "last")
    FIRST_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    first: int
    last: int
    def __init__(self, first: _Optional[int] = ..., last: _Optional[int] = ...) -> None: ...

class Seek(_message.Message):
    __slots__ = ("position",)
    POSITION_FIELD_NUMBER: _ClassVar[int]
    position: Position
    def __init__(self, position: _Optional[_Union[Position, _Mapping]] = ...) -> None: ...

class Seeked(_message.Message):
    __slots__ = ("next_offset",)
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    next_offset: int
    def __init__(self, next_offset: _Optional[int] = ...) -> None: ...

class BatchHead(_message.Message):
    __slots__ = ("producer_id", "producer_name", "publish_time", "schema_id", "schema_version", "routing_key", "attributes", "deliver_at", "deliver_after", "ttl", "publishers", "padding")
    class AttributesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    PUBLISH_TIME_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_ID_FIELD_NUMBER: _ClassVar[int]
    SCHEMA_VERSION_FIELD_NUMBER: _ClassVar[int]
    ROUTING_KEY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AT_FIELD_NUMBER: _ClassVar[int]
    DELIVER_AFTER_FIELD_NUMBER: _ClassVar[int]
    TTL_FIELD_NUMBER: _ClassVar[int]
    PUBLISHERS_FIELD_NUMBER: _ClassVar[int]
    PADDING_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_name: str
    publish_time: int
    schema_id: int
    schema_version: int
    routing_key: str
    attributes: _containers.ScalarMap[str, str]
    deliver_at: int
    deliver_after: int
    ttl: int
    publishers: _containers.RepeatedCompositeFieldContainer[Publisher]
    padding: bytes
    def __init__(self, producer_id: _Optional[int] = ..., producer_name: _Optional[str] = ..., publish_time: _Optional[int] = ..., schema_id: _Optional[int] = ..., schema_version: _Optional[int] = ..., routing_key: _Optional[str] = ..., attributes: _Optional[_Mapping[str, str]] = ..., deliver_at: _Optional[int] = ..., deliver_after: _Optional[int] = ..., ttl: _Optional[int] = ..., publishers: _Optional[_Iterable[_Union[Publisher, _Mapping]]] = ..., padding: _Optional[bytes] = ...) -> None: ...

class Publisher(_message.Message):
    __slots__ = ("producer_id", "producer_name", "broker_addr", "subscription_name")
    PRODUCER_ID_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_NAME_FIELD_NUMBER: _ClassVar[int]
    BROKER_ADDR_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTION_NAME_FIELD_NUMBER: _ClassVar[int]
    producer_id: int
    producer_name: str
    broker_addr: str
    subscription_name: str
    def __init__(self, producer_id: _Optional[int] = ..., producer_name: _Optional[str] = ..., broker_addr: _Optional[str] = ..., subscription_name: _Optional[str] = ...) -> None: ...
