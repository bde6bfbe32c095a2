from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Segment(_message.Message):
    __slots__ = ("segment_id", "topic_id", "epoch", "start_offset", "end_offset", "size", "checksum", "created_at", "min_append_ms", "max_append_ms", "min_publish_ms", "max_publish_ms", "payload_bytes", "etag", "place", "removed_messages")
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    END_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    CREATED_AT_FIELD_NUMBER: _ClassVar[int]
    MIN_APPEND_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_APPEND_MS_FIELD_NUMBER: _ClassVar[int]
    MIN_PUBLISH_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_PUBLISH_MS_FIELD_NUMBER: _ClassVar[int]
    PAYLOAD_BYTES_FIELD_NUMBER: _ClassVar[int]
    ETAG_FIELD_NUMBER: _ClassVar[int]
    PLACE_FIELD_NUMBER: _ClassVar[int]
    REMOVED_MESSAGES_FIELD_NUMBER: _ClassVar[int]
    segment_id: str
    topic_id: int
    epoch: int
    start_offset: int
    end_offset: int
    size: int
    checksum: str
    created_at: int
    min_append_ms: int
    max_append_ms: int
    min_publish_ms: int
    max_publish_ms: int
    payload_bytes: int
    etag: str
    place: str
    removed_messages: int
    def __init__(self, segment_id: _Optional[str] = ..., topic_id: _Optional[int] = ..., epoch: _Optional[int] = ..., start_offset: _Optional[int] = ..., end_offset: _Optional[int] = ..., size: _Optional[int] = ..., checksum: _Optional[str] = ..., created_at: _Optional[int] = ..., min_append_ms: _Optional[int] = ..., max_append_ms: _Optional[int] = ..., min_publish_ms: _Optional[int] = ..., max_publish_ms: _Optional[int] = ..., payload_bytes: _Optional[int] = ..., etag: _Optional[str] = ..., place: _Optional[str] = ..., removed_messages: _Optional[int] = ...) -> None: ...

class SealRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class SealResponse(_message.Message):
    __slots__ = ("segments", "next_offset")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    next_offset: int
    def __init__(self, segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., next_offset: _Optional[int] = ...) -> None: ...

class ListSegmentsRequest(_message.Message):
    __slots__ = ("topic", "from_offset", "limit")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FROM_OFFSET_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic: str
    from_offset: int
    limit: int
    def __init__(self, topic: _Optional[str] = ..., from_offset: _Optional[int] = ..., limit: _Optional[int] = ...) -> None: ...

class ListSegmentsResponse(_message.Message):
    __slots__ = ("segments", "has_more")
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    has_more: bool
    def __init__(self, segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ..., has_more: _Optional[bool] = ...) -> None: ...

class DescribeStorageRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DescribeStorageResponse(_message.Message):
    __slots__ = ("topic", "mode", "start_offset", "next_offset", "sealed_end", "segment_count", "segment_bytes", "run_count", "run_bytes", "waiting_bytes", "lag_seconds", "failures", "last_error", "fsync")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEALED_END_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_COUNT_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    RUN_COUNT_FIELD_NUMBER: _ClassVar[int]
    RUN_BYTES_FIELD_NUMBER: _ClassVar[int]
    WAITING_BYTES_FIELD_NUMBER: _ClassVar[int]
    LAG_SECONDS_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    LAST_ERROR_FIELD_NUMBER: _ClassVar[int]
    FSYNC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    mode: str
    start_offset: int
    next_offset: int
    sealed_end: int
    segment_count: int
    segment_bytes: int
    run_count: int
    run_bytes: int
    waiting_bytes: int
    lag_seconds: float
    failures: int
    last_error: str
    fsync: str
    def __init__(self, topic: _Optional[str] = ..., mode: _Optional[str] = ..., start_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., sealed_end: _Optional[int] = ..., segment_count: _Optional[int] = ..., segment_bytes: _Optional[int] = ..., run_count: _Optional[int] = ..., run_bytes: _Optional[int] = ..., waiting_bytes: _Optional[int] = ..., lag_seconds: _Optional[float] = ..., failures: _Optional[int] = ..., last_error: _Optional[str] = ..., fsync: _Optional[str] = ...) -> None: ...

class ReadSegmentRequest(_message.Message):
    __slots__ = ("topic", "segment_id", "position", "size")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_ID_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    topic: str
    segment_id: str
    position: int
    size: int
    def __init__(self, topic: _Optional[str] = ..., segment_id: _Optional[str] = ..., position: _Optional[int] = ..., size: _Optional[int] = ...) -> None: ...

class ReadSegmentResponse(_message.Message):
    __slots__ = ("position", "data")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    position: int
    data: bytes
    def __init__(self, position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class BeginImportRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class BeginImportResponse(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    def __init__(self, topic_id: _Optional[int] = ...) -> None: ...

class ImportPartRequest(_message.Message):
    __slots__ = ("topic_id", "file_number", "position", "data")
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    FILE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    file_number: int
    position: int
    data: bytes
    def __init__(self, topic_id: _Optional[int] = ..., file_number: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ImportPartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinishImportRequest(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    def __init__(self, topic_id: _Optional[int] = ...) -> None: ...

class FinishImportResponse(_message.Message):
    __slots__ = ("start_offset", "next_offset", "segments")
    START_OFFSET_FIELD_NUMBER: _ClassVar[int]
    NEXT_OFFSET_FIELD_NUMBER: _ClassVar[int]
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    start_offset: int
    next_offset: int
    segments: int
    def __init__(self, start_offset: _Optional[int] = ..., next_offset: _Optional[int] = ..., segments: _Optional[int] = ...) -> None: ...

class AbandonImportRequest(_message.Message):
    __slots__ = ("topic_id",)
    TOPIC_ID_FIELD_NUMBER: _ClassVar[int]
    topic_id: int
    def __init__(self, topic_id: _Optional[int] = ...) -> None: ...

class AbandonImportResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class BeginReplacementRequest(_message.Message):
    __slots__ = ("topic", "segment_ids", "reason")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    SEGMENT_IDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic: str
    segment_ids: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, topic: _Optional[str] = ..., segment_ids: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class BeginReplacementResponse(_message.Message):
    __slots__ = ("replacement_id",)
    REPLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    replacement_id: int
    def __init__(self, replacement_id: _Optional[int] = ...) -> None: ...

class ReplacementPartRequest(_message.Message):
    __slots__ = ("replacement_id", "topic", "file_number", "position", "data")
    REPLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    FILE_NUMBER_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    replacement_id: int
    topic: str
    file_number: int
    position: int
    data: bytes
    def __init__(self, replacement_id: _Optional[int] = ..., topic: _Optional[str] = ..., file_number: _Optional[int] = ..., position: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ReplacementPartResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class FinishReplacementRequest(_message.Message):
    __slots__ = ("replacement_id", "topic")
    REPLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    replacement_id: int
    topic: str
    def __init__(self, replacement_id: _Optional[int] = ..., topic: _Optional[str] = ...) -> None: ...

class FinishReplacementResponse(_message.Message):
    __slots__ = ("segments",)
    SEGMENTS_FIELD_NUMBER: _ClassVar[int]
    segments: _containers.RepeatedCompositeFieldContainer[Segment]
    def __init__(self, segments: _Optional[_Iterable[_Union[Segment, _Mapping]]] = ...) -> None: ...

class AbandonReplacementRequest(_message.Message):
    __slots__ = ("replacement_id", "topic")
    REPLACEMENT_ID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    replacement_id: int
    topic: str
    def __init__(self, replacement_id: _Optional[int] = ..., topic: _Optional[str] = ...) -> None: ...

class AbandonReplacementResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DropCopiesRequest(_message.Message):
    __slots__ = ("topic",)
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    topic: str
    def __init__(self, topic: _Optional[str] = ...) -> None: ...

class DropCopiesResponse(_message.Message):
    __slots__ = ("runs", "replaced_files")
    RUNS_FIELD_NUMBER: _ClassVar[int]
    REPLACED_FILES_FIELD_NUMBER: _ClassVar[int]
    runs: int
    replaced_files: int
    def __init__(self, runs: _Optional[int] = ..., replaced_files: _Optional[int] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ("namespace", "after")
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    namespace: str
    after: str
    def __init__(self, namespace: _Optional[str] = ..., after: _Optional[str] = ...) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics", "has_more")
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    HAS_MORE_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    has_more: bool
    def __init__(self, topics: _Optional[_Iterable[str]] = ..., has_more: _Optional[bool] = ...) -> None: ...
