"""Every error a caller can receive, grouped by what the caller can do about it.

    DanubeError
    ├── Rejected        fix the request, then send it again
    ├── Conflict        somebody was faster or the state differs: read again, then decide
    ├── Unavailable     nothing was taken; the same request may succeed later or elsewhere
    ├── OutcomeUnknown  the request may or may not have taken effect: look before repeating
    └── Corrupt         stored bytes are not what was written: stop, keep the bytes

The table below is the one list of codes for gRPC, the native protocol, HTTP and the documents.
Numbers are part of the wire contract: a retired one is never given to something else.
"""

from enum import Enum, IntEnum
from typing import ClassVar


class Status(IntEnum):
    """gRPC status codes, as numbered by gRPC."""

    OK = 0
    CANCELLED = 1
    UNKNOWN = 2
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    NOT_FOUND = 5
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    ABORTED = 10
    OUT_OF_RANGE = 11
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    DATA_LOSS = 15
    UNAUTHENTICATED = 16


class ErrorCode(Enum):
    """Number, gRPC status and meaning of each error."""

    number: int
    status: Status
    meaning: str

    def __new__(cls, number: int, status: Status, meaning: str) -> "ErrorCode":
        member = object.__new__(cls)
        member._value_ = number
        member.number = number
        member.status = status
        member.meaning = meaning
        return member

    # 1xx: the request itself
    MALFORMED_REQUEST = (
        100,
        Status.INVALID_ARGUMENT,
        "the request cannot be decoded or lacks a required field",
    )
    TOPIC_NAME_INVALID = (
        101,
        Status.INVALID_ARGUMENT,
        "a topic name is /namespace/topic of letters, digits, _ and -",
    )
    MESSAGE_TOO_LARGE = (
        102,
        Status.INVALID_ARGUMENT,
        "the message is larger than the topic or the wire allows",
    )
    ARGUMENT_INVALID = (103, Status.INVALID_ARGUMENT, "an argument is outside its range")
    METHOD_UNKNOWN = (104, Status.UNIMPLEMENTED, "no such service or method on this port")
    REQUEST_TOO_LARGE = (105, Status.OUT_OF_RANGE, "the request exceeds the wire limit of one message")
    PROTOCOL_VIOLATION = (106, Status.INVALID_ARGUMENT, "the peer does not keep to the native protocol")
    BATCH_INVALID = (107, Status.INVALID_ARGUMENT, "the batch cannot be read as its head describes it")
    # Tools show the text of a failed registration whatever the status; INTERNAL is what they know.
    SCHEMA_INVALID = (108, Status.INTERNAL, "the schema is of no known type or cannot be understood")
    CLUSTER_ONLY = (110, Status.UNIMPLEMENTED, "only a broker that is part of a cluster can do that")
    PAYLOAD_INVALID = (109, Status.INVALID_ARGUMENT, "the payload does not fit the schema of the topic")
    SCHEMA_MISMATCH = (
        111,
        Status.INVALID_ARGUMENT,
        "the message names no schema, or not one of the topic's subject",
    )

    # 2xx: what the request names
    TOPIC_UNKNOWN = (200, Status.NOT_FOUND, "no such topic")
    NAMESPACE_UNKNOWN = (201, Status.NOT_FOUND, "no such namespace")
    PRODUCER_UNKNOWN = (202, Status.NOT_FOUND, "this broker does not know the producer id")
    CONSUMER_UNKNOWN = (203, Status.NOT_FOUND, "this broker does not know the consumer id")
    SUBSCRIPTION_UNKNOWN = (204, Status.INTERNAL, "the topic has no such subscription")
    SUBJECT_UNKNOWN = (205, Status.FAILED_PRECONDITION, "no such schema subject")
    CHANNEL_UNKNOWN = (207, Status.NOT_FOUND, "the connection has no such channel")
    SCHEMA_UNKNOWN = (208, Status.NOT_FOUND, "the registry has no such subject, schema id or version")
    LEASE_UNKNOWN = (206, Status.NOT_FOUND, "the metadata lease has expired or was revoked")

    # 3xx: the state the request met
    TOPIC_CONFLICT = (300, Status.ALREADY_EXISTS, "a plain topic and partitions of it cannot exist together")
    DISPATCH_MISMATCH = (301, Status.FAILED_PRECONDITION, "the topic exists with the other dispatch strategy")
    SUBJECT_CONFLICT = (302, Status.FAILED_PRECONDITION, "the topic is bound to another schema subject")
    PRODUCER_EXCLUSIVE = (303, Status.FAILED_PRECONDITION, "another producer holds the topic exclusively")
    CONSUMER_EXCLUSIVE = (304, Status.PERMISSION_DENIED, "another consumer holds the exclusive subscription")
    VERSION_MISMATCH = (305, Status.ABORTED, "the stored value changed since it was read")
    TOPIC_MISMATCH = (306, Status.INVALID_ARGUMENT, "the producer belongs to another topic")
    HISTORY_LOST = (
        307,
        Status.OUT_OF_RANGE,
        "the watched metadata version is no longer remembered: list again",
    )
    SEQUENCE_GAP = (
        308,
        Status.FAILED_PRECONDITION,
        "the sequence is not the producer's next one: send again from the expected one",
    )

    OFFSET_GONE = (309, Status.OUT_OF_RANGE, "retention has deleted the offset")
    PRODUCER_FENCED = (310, Status.ABORTED, "a newer session of the same producer name exists")
    SCHEMA_INCOMPATIBLE = (311, Status.INTERNAL, "the schema would break readers the subject protects")
    NAMESPACE_CONFLICT = (312, Status.ALREADY_EXISTS, "the namespace exists already")
    NAMESPACE_IN_USE = (313, Status.FAILED_PRECONDITION, "the namespace has topics, or has to exist")
    SUBSCRIPTION_IN_USE = (314, Status.FAILED_PRECONDITION, "consumers are connected to the subscription")
    PARTITION_BOUND = (315, Status.FAILED_PRECONDITION, "partitions are deleted all together")
    BROKER_ALONE = (316, Status.FAILED_PRECONDITION, "there is no other broker to take the topics")
    SCHEMA_IN_USE = (317, Status.FAILED_PRECONDITION, "other schemas refer to this version")

    # 4xx: limits
    PRODUCERS_EXHAUSTED = (400, Status.RESOURCE_EXHAUSTED, "max_producers_per_topic is reached")
    CONSUMERS_EXHAUSTED = (401, Status.RESOURCE_EXHAUSTED, "max_consumers_per_topic is reached")
    SUBSCRIPTIONS_EXHAUSTED = (402, Status.PERMISSION_DENIED, "max_subscriptions_per_topic is reached")
    SUBSCRIPTION_FULL = (403, Status.PERMISSION_DENIED, "max_consumers_per_subscription is reached")
    CHANNELS_EXHAUSTED = (404, Status.RESOURCE_EXHAUSTED, "the connection has as many channels as it may")

    # 5xx: the broker
    TOPIC_MOVED = (500, Status.UNAVAILABLE, "the topic is served elsewhere: look it up again")
    TOPIC_DRAINING = (501, Status.UNAVAILABLE, "the topic is being closed: look it up again")
    STOPPING = (502, Status.UNAVAILABLE, "the broker is stopping")
    OVERLOADED = (503, Status.UNAVAILABLE, "too much is waiting to be written: try again shortly")
    JOURNAL_STOPPED = (504, Status.UNAVAILABLE, "the journal has failed; nothing more is accepted")
    STORE_FAILED = (505, Status.INTERNAL, "the metadata store failed")
    STORAGE_FAILED = (506, Status.INTERNAL, "reading stored messages failed")
    INTERNAL = (507, Status.INTERNAL, "a bug in the broker")
    SESSION_GONE = (
        508,
        Status.UNAVAILABLE,
        "the id belonged to a topic that was closed here: look it up again",
    )
    OUTCOME_UNKNOWN = (509, Status.UNKNOWN, "whether the request took effect is not known")
    DISK_FULL = (
        510,
        Status.UNAVAILABLE,
        "no disk space for a new journal file; goes on by itself once there is",
    )

    # 6xx: stored bytes
    JOURNAL_CORRUPT = (600, Status.DATA_LOSS, "the journal holds bytes that were not written so")
    SEGMENT_CORRUPT = (601, Status.DATA_LOSS, "a segment holds bytes that were not written so")
    METADATA_CORRUPT = (602, Status.DATA_LOSS, "the metadata store holds bytes that were not written so")

    # 7xx: who asks, and what they may
    CREDENTIALS_MISSING = (
        700,
        Status.UNAUTHENTICATED,
        "the call carries no token and no accepted certificate",
    )
    TOKEN_INVALID = (701, Status.UNAUTHENTICATED, "the token cannot be accepted")
    TOKEN_EXPIRED = (702, Status.UNAUTHENTICATED, "the token's time is over: get a new one")
    TOKENS_NOT_CONFIGURED = (
        704,
        Status.FAILED_PRECONDITION,
        "a token was sent, but no key to check it with is set",
    )
    PERMISSION_DENIED = (705, Status.PERMISSION_DENIED, "no role of the caller grants this")
    ROLE_UNKNOWN = (706, Status.NOT_FOUND, "no such role")
    BINDING_UNKNOWN = (707, Status.NOT_FOUND, "no such binding")
    ROLE_PROTECTED = (708, Status.FAILED_PRECONDITION, "a system role cannot be deleted")
    RATE_EXCEEDED = (709, Status.RESOURCE_EXHAUSTED, "the caller sends more than it may: slow down")
    CONNECTIONS_EXHAUSTED = (710, Status.RESOURCE_EXHAUSTED, "the caller has as many connections as it may")
    POLICIES_EXHAUSTED = (711, Status.RESOURCE_EXHAUSTED, "as many roles or bindings exist as may")


class DanubeError(Exception):
    """The root. `code` says which error; the text says what was wrong, where, and what to do."""

    default_code: ClassVar[ErrorCode] = ErrorCode.INTERNAL

    def __init__(self, text: str, code: ErrorCode | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.code = code or self.default_code

    @property
    def status(self) -> Status:
        return self.code.status


class Rejected(DanubeError):
    """The request is at fault: fix it, then send it again."""

    default_code = ErrorCode.ARGUMENT_INVALID


class Conflict(DanubeError):
    """The state differs from what the caller assumed: read again, then decide."""

    default_code = ErrorCode.VERSION_MISMATCH


class Unavailable(DanubeError):
    """Nothing was taken; the same request may succeed later or elsewhere."""

    default_code = ErrorCode.STOPPING


class OutcomeUnknown(DanubeError):
    """The request may have taken effect: look before repeating it."""

    default_code = ErrorCode.OUTCOME_UNKNOWN


class Corrupt(DanubeError):
    """Stored bytes are not what was written: stop, keep the bytes."""

    default_code = ErrorCode.JOURNAL_CORRUPT
