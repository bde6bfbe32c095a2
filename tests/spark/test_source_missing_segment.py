"""A segment's file that goes away between planning and reading."""

from pathlib import Path

import pytest
from spark_harness.broker_process import BrokerProcess

from pydanube.kernel.errors import Corrupt
from pydanube.spark.source.options import parse_options
from pydanube.spark.source.slices import Slice
from pydanube.spark.source.stream_reader import StreamReader

TOPIC = "/default/missing"


def test_the_broker_is_asked_and_what_nobody_has_is_an_error(broker: BrokerProcess) -> None:
    broker.publish(TOPIC, [b"%d" % number for number in range(40)])
    broker.seal(TOPIC)
    reader = StreamReader(parse_options({"topic": TOPIC, "url": broker.url}), ["offset"])
    [piece] = reader.partitions({TOPIC: 0}, {TOPIC: 40})
    assert isinstance(piece, Slice)
    assert piece.segment is not None
    Path(piece.segment.place).unlink()
    offsets = [offset for batch in reader.read(piece) for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(40)), "the broker still has them in memory"
    broker.restart()
    with pytest.raises(Corrupt, match="is missing: restore it from a backup"):
        list(reader.read(piece))
