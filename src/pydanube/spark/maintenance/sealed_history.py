"""The segments of a topic as of one moment, and the messages in them as rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pydanube.spark.connection import Connection
from pydanube.spark.maintenance.placed_segment import PlacedSegment
from pydanube.spark.maintenance.storage_calls import StorageCalls
from pydanube.spark.reading import read_ranges
from pydanube.spark.topics import TopicPart, resolve


@dataclass(frozen=True, slots=True)
class Target:
    """The Spark that works, and the broker it works for."""

    spark: SparkSession
    connection: Connection
    """The port of clients."""
    admin: Connection
    """The admin port."""
    store: Mapping[str, str] = field(default_factory=dict, repr=False)
    """How to get into the object store; without it, segments there come through the broker."""


@dataclass(frozen=True, slots=True)
class SealedHistory:
    target: Target
    parts: Mapping[str, list[PlacedSegment]]
    """Oldest first, by the name of the topic or of its partition."""

    @classmethod
    def of(cls, target: Target, topic: str) -> "SealedHistory":
        """Of a topic with all its partitions."""
        with target.connection.client() as client, StorageCalls(target.admin) as calls:
            return cls(target, {part.name: calls.segments(part.name) for part in resolve(client, [topic])})

    @property
    def segment_count(self) -> int:
        return sum(map(len, self.parts.values()))

    def messages(self, columns: Sequence[str]) -> DataFrame:
        """What is sealed and was not removed: `part`, `offset` and the columns asked for."""
        ranges = {
            part: range(segments[0].descriptor.start_offset, segments[-1].descriptor.next_offset)
            for part, segments in self.parts.items()
            if segments
        }
        target = self.target
        wanted = ["partition", "offset", *columns]
        rows = read_ranges(target.spark, target.connection, ranges, columns=wanted, store=target.store)
        names = {TopicPart.of_name(part).partition: part for part in self.parts}
        numbered = F.create_map(*(F.lit(each) for pair in names.items() for each in pair))
        return rows.select(numbered[F.col("partition")].alias("part"), "offset", *columns)

    def count_by_segment(self, messages: DataFrame) -> dict[str, int]:
        """How many of these, given by `part` and `offset`, are in each segment, by its id; none is left out."""
        bounds = [
            (part, each.descriptor.segment_id, each.descriptor.start_offset, each.descriptor.end_offset)
            for part, segments in self.parts.items()
            for each in segments
        ]
        if not bounds:
            return {}
        ranges = self.target.spark.createDataFrame(
            bounds, "topic STRING, segment STRING, first BIGINT, last BIGINT"
        )
        inside = (F.col("part") == F.col("topic")) & F.col("offset").between(F.col("first"), F.col("last"))
        counted = messages.join(F.broadcast(ranges), inside).groupBy("segment").count()
        return {row["segment"]: row["count"] for row in counted.collect()}
