"""What a pipeline's file can say; docs/pipelines.md explains it with examples."""

from typing import Any, Final, Literal

import msgspec

OnError = Literal["permissive", "quarantine", "fail"]


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Part of a file: a key it does not know is a mistake."""


class Decode(_Section, frozen=True, kw_only=True):
    """Payloads into columns."""

    on_error: OnError = "quarantine"
    subject: str | None = None
    """Of the schema registry; without it, the one the topic is bound to."""
    version: int | None = None
    schema_file: str | None = None
    """A schema from a file instead of the registry."""
    schema_type: Literal["json_schema", "avro", "protobuf", "string", "number", "bytes"] | None = None


class Watermark(_Section, frozen=True, kw_only=True):
    column: str
    delay: str


class FilesSource(_Section, frozen=True, kw_only=True):
    path: str
    format: Literal["parquet", "json", "csv", "orc", "text"]
    options: dict[str, str] = {}


class KafkaSource(_Section, frozen=True, kw_only=True):
    bootstrap_servers: str
    topic: str
    start: Literal["earliest", "latest"] = "earliest"
    options: dict[str, str] = {}


class JdbcTable(_Section, frozen=True, kw_only=True):
    url: str
    table: str
    user: str | None = None
    password_env: str | None = None
    """The environment variable that holds the password: secrets do not belong into files."""
    options: dict[str, str] = {}


class LakeTable(_Section, frozen=True, kw_only=True):
    format: Literal["iceberg", "delta", "parquet"]
    table: str
    """A name in a catalog, or a path."""
    warehouse: str | None = None
    """Of Iceberg: the directory of the catalog that the name begins with, if no setting of Spark says what it is."""
    options: dict[str, str] = {}


class Source(_Section, frozen=True, kw_only=True):
    """Where rows come from: exactly one of topic, topics, files, kafka, jdbc and table."""

    topic: str | None = None
    topics: list[str] | None = None
    files: FilesSource | None = None
    kafka: KafkaSource | None = None
    jdbc: JdbcTable | None = None
    table: LakeTable | None = None
    start: str | dict[str, Any] | None = None
    """Of topics: earliest, latest, a time, or offsets."""
    max_messages_per_trigger: int | None = None
    max_bytes_per_trigger: int | None = None
    columns: str | None = None
    """In Spark's words: files that are followed need them, tests take them for what only Spark knows."""
    decode: Decode | None = None
    watermark: Watermark | None = None
    static: bool = False
    """Read once and whole, for joins and enrichment, instead of followed."""


class Dedupe(_Section, frozen=True, kw_only=True):
    by: list[str]
    within: str
    time: str = "append_time"


class Window(_Section, frozen=True, kw_only=True):
    size: str
    aggregate: dict[str, str]
    """Columns to make, each with its SQL."""
    time: str = "append_time"
    slide: str | None = None
    by: list[str] = []
    late_by: str | None = None
    """How late a row may come and still count; not at all if this is left out and no watermark says so."""


class Join(_Section, frozen=True, kw_only=True):
    other: str = msgspec.field(name="with")
    """A source, or an earlier step by its name."""
    on: list[str] | str
    """Columns both sides have, or a condition in SQL."""
    type: Literal["inner", "left", "right", "full", "left_semi", "left_anti"] = "inner"
    within: str | None = None
    """Of two streams: how far apart in time rows may be."""


class Enrich(_Section, frozen=True, kw_only=True):
    other: str = msgspec.field(name="with")
    on: list[str] | str
    columns: list[str]
    """What to take over from it."""


class Function(_Section, frozen=True, kw_only=True):
    name: str
    """module:function, or what `@pipeline_function` named; called with the DataFrame and `args`."""
    args: dict[str, Any] = {}


class Step(_Section, frozen=True, kw_only=True):
    """One operation, on what the step before gave, or on what `from` names."""

    name: str | None = None
    source: str | None = msgspec.field(name="from", default=None)
    sql: str | None = None
    filter: str | None = None
    map: dict[str, str] | None = None
    """Columns to make or replace, each with its SQL."""
    select: list[str] | None = None
    drop: list[str] | None = None
    dedupe: Dedupe | None = None
    window: Window | None = None
    join: Join | None = None
    enrich: Enrich | None = None
    function: Function | None = None


class TopicSink(_Section, frozen=True, kw_only=True):
    topic: str
    key: str | None = None
    payload: str | None = None
    """The column that is the payload; without it, all columns as JSON."""
    attributes: str | None = None
    partitions: int | None = None


class KafkaSink(_Section, frozen=True, kw_only=True):
    bootstrap_servers: str
    topic: str
    key: str | None = None
    payload: str | None = None
    options: dict[str, str] = {}


class TableSink(_Section, frozen=True, kw_only=True):
    table: str
    """A name in a catalog; of Delta also a path."""
    warehouse: str | None = None
    """Of Iceberg: the directory of the catalog that the name begins with, if no setting of Spark says what it is."""
    partition_by: list[str] = []
    properties: dict[str, str] = {}
    """Of the table, when it is made."""


class FilesSink(_Section, frozen=True, kw_only=True):
    path: str
    partition_by: list[str] = []


class ConsoleSink(_Section, frozen=True, kw_only=True):
    rows: int = 20


class Sink(_Section, frozen=True, kw_only=True):
    """Where rows go: exactly one of these."""

    topic: TopicSink | str | None = None
    iceberg: TableSink | str | None = None
    delta: TableSink | str | None = None
    parquet: FilesSink | str | None = None
    jdbc: JdbcTable | None = None
    kafka: KafkaSink | None = None
    console: ConsoleSink | None = None
    mode: Literal["append", "update", "complete"] = "append"


class Trigger(_Section, frozen=True, kw_only=True):
    every: str | None = None
    """Such as 10 seconds; as fast as possible if this is left out."""
    available_now: bool = False
    """Take what is there, then end."""


class Case(_Section, frozen=True, kw_only=True):
    """A test: rows in, rows out."""

    name: str
    given: dict[str, list[dict[str, Any]]] | list[dict[str, Any]]
    """Rows of each source, by its name; a list is for the only one."""
    expect: list[dict[str, Any]]
    """Rows of the sink, in any order; columns not named here do not matter."""
    quarantined: list[dict[str, Any]] = []


class Pipeline(_Section, frozen=True, kw_only=True):
    name: str
    description: str = ""
    broker: str | None = None
    source: Source | None = None
    sources: dict[str, Source] = {}
    """Several, by name; a single one is called `source`."""
    steps: list[Step] = []
    sink: Sink
    quarantine: Sink | None = None
    trigger: Trigger = Trigger()
    checkpoint: str | None = None
    spark: dict[str, str] = {}
    """Settings of the Spark session."""
    packages: list[str] = []
    """What Spark loads besides what sources and sinks need, such as a JDBC driver: group:artifact:version."""
    tests: list[Case] = []

    @property
    def all_sources(self) -> dict[str, Source]:
        return self.sources if self.source is None else {"source": self.source, **self.sources}

    @property
    def libraries(self) -> tuple[str, ...]:
        """What Spark must load for it, by the names of `jars.LIBRARIES`."""
        tables = [each.table.format for each in self.all_sources.values() if each.table is not None]
        sections: list[Source | Sink] = [*self.all_sources.values(), *self.all_sinks]
        kinds = [kind for each in sections for kind in given(each)]
        return tuple(sorted({"iceberg", "delta", "kafka"}.intersection([*tables, *kinds])))

    @property
    def all_sinks(self) -> tuple[Sink, ...]:
        return (self.sink,) if self.quarantine is None else (self.sink, self.quarantine)


SOURCES: Final = ("topic", "topics", "files", "kafka", "jdbc", "table")
OPERATIONS: Final = (
    "sql", "filter", "map", "select", "drop", "dedupe", "window", "join", "enrich", "function",
)  # fmt: skip
SINKS: Final = ("topic", "iceberg", "delta", "parquet", "jdbc", "kafka", "console")
_KINDS: Final = {Source: SOURCES, Step: OPERATIONS, Sink: SINKS}


def given(section: Source | Step | Sink) -> list[str]:
    """Which of the keys of which there must be exactly one."""
    return [name for name in _KINDS[type(section)] if getattr(section, name) is not None]


def static(source: Source) -> bool:
    """Whether it is read whole, and not followed."""
    return source.static or source.jdbc is not None
