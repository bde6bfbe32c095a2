"""Segments as files: what is in them, what they say of themselves, what is found when they are damaged."""

import os
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from crc32c import crc32c

from pydanube.history import segment_file, segment_writer
from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.listed_segment import descriptor_of, listed_segment
from pydanube.history.rewriting import rewrite_segments
from pydanube.history.segment import SegmentDescriptor, topic_id_of
from pydanube.history.segment_file import read_facts, topic_of, verify_segment, write_segment
from pydanube.history.segment_writer import SegmentWriter
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.protocol import storage_admin_pb2 as pb
from pydanube.protocol.native.arrow import encode_payloads
from pydanube.protocol.native.batch import ATTRIBUTES, PAYLOAD, ZSTD
from pydanube.protocol.native.columns import encode_record_batch, schema_of
from pydanube.protocol.native_pb2 import BatchHead


def batch(*payloads: bytes, codec: int = 0, **head: object) -> bytes:
    return encode_payloads(payloads, BatchHead(producer_id=8, producer_name="press", **head), codec=codec)


def files(job) -> list[str]:
    return sorted(os.listdir(job.spool))


def changed(path: str, position: int, value: bytes) -> None:
    data = bytearray(Path(path).read_bytes())
    data[position : position + len(value)] = value
    Path(path).write_bytes(data)


@pytest.fixture
def mixed(make_run, make_job, row):
    """A segment of two runs in which rows and batches of all sorts alternate, in small row groups."""
    first = [
        row(b"r0", attributes={"a": "1"}),
        batch(b"b1", b"b2", publish_time=70),
        row(b"r3", routing_key="k"),
        batch(b"b4", codec=ZSTD),
        encode_payloads(
            [b"b5", b"b6"],
            BatchHead(
                producer_id=2**63 + 1, producer_name="p", schema_id=2**64 - 1, ttl=60_000, routing_key="all"
            ),
            publish_times=[3, 4],
            compaction_keys=[b"c", None],
        ),
    ]
    second = [row(bytes([number]) * 50) for number in range(100)]
    runs = make_run(first), make_run(second, start=7, append_ms=5000)
    return write_segment(make_job(*runs, row_group_bytes=4000))


def test_messages_of_rows_and_batches_come_in_the_order_of_their_offsets(mixed):
    table = pq.read_table(mixed.path)
    assert table.column("offset").to_pylist() == list(range(107))
    assert table.column("payload").to_pylist()[:9] == [
        b"r0",
        b"b1",
        b"b2",
        b"r3",
        b"b4",
        b"b5",
        b"b6",
        b"\0" * 50,
        b"\1" * 50,
    ]
    head = table.slice(0, 7)
    assert head.column("producer_name").to_pylist() == ["till", "press", "press", "till", "press", "p", "p"]
    assert head.column("request_id").to_pylist() == [1, None, None, 1, None, None, None]
    assert head.column("producer_id").to_pylist() == [5, 8, 8, 5, 8, 1 - 2**63, 1 - 2**63]
    assert head.column("schema_id").to_pylist() == [None] * 5 + [-1, -1]
    assert head.column("routing_key").to_pylist() == [None, None, None, "k", None, "all", "all"]
    assert head.column("publish_time").cast(pa.int64()).to_pylist() == [900, 70, 70, 900, 0, 3, 4]
    assert head.column("append_time").cast(pa.int64()).to_pylist() == [
        1000,
        1001,
        1001,
        1002,
        1003,
        1004,
        1004,
    ]
    attributes = [None if own is None else dict(own) for own in head.column("attributes").to_pylist()]
    assert attributes[:5] == [{"a": "1"}, None, None, None, None]
    assert attributes[5:] == [{"x-ttl": "60000", "x-compaction-key": "c"}, {"x-ttl": "60000"}]


def test_the_descriptor_says_what_is_in_the_file(mixed):
    descriptor = mixed.descriptor
    data = Path(mixed.path).read_bytes()
    assert Path(mixed.path).name == descriptor.segment_id
    assert topic_id_of(descriptor.segment_id) == 7
    assert descriptor == SegmentDescriptor(
        segment_id=descriptor.segment_id,
        topic_id=7,
        epoch=3,
        start_offset=0,
        end_offset=106,
        size=len(data),
        checksum=f"{crc32c(data):08x}",
        created_at=1_700_000_000,
        min_append_ms=1000,
        max_append_ms=5099,
        min_publish_ms=0,
        max_publish_ms=900,
        payload_bytes=14 + 100 * 50,
        removed_messages=0,
    )


def test_a_file_tells_its_descriptor_itself(mixed):
    assert read_facts(mixed.path) == mixed.descriptor
    assert read_facts(Path(mixed.path).read_bytes()) == mixed.descriptor
    assert topic_of(mixed.path) == TopicName("default", "orders")


def test_a_good_file_verifies(mixed):
    findings = verify_segment(mixed.path)
    assert findings.is_good
    assert findings.descriptor == mixed.descriptor
    assert (findings.messages, findings.row_groups) == (107, pq.read_metadata(mixed.path).num_row_groups)
    assert findings.row_groups > 1


def test_the_footer_names_topic_ledger_and_offsets(mixed):
    metadata = pq.read_metadata(mixed.path).metadata
    assert metadata[b"danube.topic"] == b"/default/orders"
    assert metadata[b"danube.ledger"] == b"7/3"
    assert (metadata[b"danube.start_offset"], metadata[b"danube.end_offset"]) == (b"0", b"106")
    data = Path(mixed.path).read_bytes()
    footer_at = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
    assert metadata[b"danube.checksum"] == f"{crc32c(data[:footer_at]):08x}".encode()


def test_columns_are_encoded_for_what_they_hold(mixed):
    metadata = pq.read_metadata(mixed.path)
    columns = {
        metadata.row_group(0).column(n).path_in_schema: metadata.row_group(0).column(n) for n in range(14)
    }
    for name in ("offset", "publish_time", "append_time"):
        assert "DELTA_BINARY_PACKED" in columns[name].encodings
        assert columns[name].statistics.has_min_max
    assert "RLE_DICTIONARY" in columns["producer_name"].encodings
    assert "RLE_DICTIONARY" not in columns["payload"].encodings
    assert columns["payload"].statistics is None


def test_other_engines_read_the_columns(mixed):
    frame = pl.read_parquet(mixed.path)
    assert frame["offset"].to_list() == list(range(107))
    assert frame["producer_name"].cast(pl.String).to_list()[:2] == ["till", "press"]
    assert frame.schema["append_time"] == pl.Datetime("ms", "UTC")
    assert frame["payload"].to_list()[3] == b"r3"
    frame = pd.read_parquet(mixed.path)
    assert frame["routing_key"].iloc[3] == "k"
    assert str(frame["publish_time"].dtype) == "datetime64[ms, UTC]"


def test_columns_come_back_as_the_schema_says(mixed):
    assert pq.read_schema(mixed.path).remove_metadata() == SEGMENT_SCHEMA


def test_row_groups_are_bounded_by_bytes_and_by_rows(make_run, make_job, row, monkeypatch):
    monkeypatch.setattr(segment_writer, "ROW_GROUP_ROWS_MAX", 300)
    large = write_segment(make_job(make_run([row(bytes(1000)) for _ in range(500)]), row_group_bytes=100_000))
    small = write_segment(make_job(make_run([row(b"") for _ in range(1000)], start=500)))
    metadata = pq.read_metadata(large.path)
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(sizes) == 500
    assert max(sizes) <= 110
    assert min(sizes[:-1]) >= 80
    metadata = pq.read_metadata(small.path)
    assert [metadata.row_group(number).num_rows for number in range(4)] == [300, 300, 300, 100]


def test_small_runs_share_row_groups(make_run, make_job, row):
    runs = [make_run([row(b"x"), batch(b"y", b"z")], start=3 * number) for number in range(40)]
    converted = write_segment(make_job(*runs))
    assert pq.read_metadata(converted.path).num_row_groups == 1
    assert verify_segment(converted.path).messages == 120


def test_a_head_with_much_to_say_for_many_messages_does_not_make_a_huge_row_group(make_run, make_job):
    talkative = batch(*[b""] * 1000, attributes={"story": "x" * 5000})
    converted = write_segment(make_job(make_run([talkative] * 4), row_group_bytes=4_000_000))
    assert pq.read_metadata(converted.path).num_row_groups == 4


@pytest.mark.parametrize(
    ("payload", "codec"), [(b"abcd" * 250, "ZSTD"), (None, "UNCOMPRESSED"), (b"", "UNCOMPRESSED")]
)
def test_payloads_are_compressed_if_it_is_worth_it(make_run, make_job, row, payload, codec):
    bodies = [row(os.urandom(1000) if payload is None else payload) for _ in range(600)]
    converted = write_segment(make_job(make_run(bodies)))
    metadata = pq.read_metadata(converted.path)
    compression = {
        metadata.row_group(0).column(number).path_in_schema: metadata.row_group(0).column(number).compression
        for number in range(metadata.num_columns)
    }
    assert compression.pop("payload") == codec
    assert set(compression.values()) == {"ZSTD"}


def test_times_beyond_any_calendar_are_kept(make_run, make_job, row):
    converted = write_segment(
        make_job(make_run([row(b"a", publish_time=2**64 - 1), row(b"b", publish_time=1)]))
    )
    assert (converted.descriptor.min_publish_ms, converted.descriptor.max_publish_ms) == (1, 2**63 - 1)
    assert read_facts(converted.path) == converted.descriptor
    assert verify_segment(converted.path).is_good


def test_nothing_is_left_of_a_segment_that_could_not_be_made(make_run, make_job, row):
    runs = make_run([row(bytes(2000)) for _ in range(100)]), make_run([row(b"later")], start=101)
    job = make_job(*runs, row_group_bytes=10_000)
    with pytest.raises(Corrupt, match="offset 101 on do not continue a segment that has come to 100"):
        write_segment(job)
    assert files(job) == []


def test_runs_of_several_topics_are_refused(make_run, make_job, row):
    job = make_job(make_run([row(b"a")]), make_run([row(b"b")], start=1, topic_id=8))
    with pytest.raises(Rejected, match=r"topics \[7, 8\]"):
        write_segment(job)


def test_a_batch_that_is_none_is_refused_with_its_offset(make_run, make_job, row):
    good = batch(b"a", b"b")
    job = make_job(make_run([row(b"r"), good[:20] + b"\xff" * 30 + good[50:]]))
    with pytest.raises(Corrupt, match="batch at offset 1 cannot be read") as caught:
        write_segment(job)
    assert caught.value.code is ErrorCode.SEGMENT_CORRUPT


def test_what_lies_under_a_null_is_no_attribute(make_run, make_job):
    entries = pa.MapArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()),
        pa.array(["hidden", "shown"]),
        pa.array(["1", "2"]),
        mask=pa.array([True, False]),
    )
    columns = pa.RecordBatch.from_arrays(
        [pa.array([b"a", b"b"]), entries], schema=schema_of(PAYLOAD | ATTRIBUTES)
    )
    body = encode_record_batch(columns, BatchHead(producer_name="p", attributes={"all": "0"}))
    converted = write_segment(make_job(make_run([body])))
    attributes = pq.read_table(converted.path).column("attributes").to_pylist()
    assert [dict(own) for own in attributes] == [{"all": "0"}, {"all": "0", "shown": "2"}]


def test_a_full_disk_may_be_tried_again(make_run, make_job, row, monkeypatch):
    job = make_job(make_run([row(b"a")]))

    def no_room(fd: int, data: bytes) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(segment_writer.os, "write", no_room)
    with pytest.raises(Unavailable, match="No space left on device"):
        write_segment(job)
    assert files(job) == []


def test_a_spool_that_is_gone_may_be_tried_again(make_run, make_job, row):
    job = msgspec.structs.replace(make_job(make_run([row(b"a")])), spool="nowhere")
    with pytest.raises(Unavailable, match="nowhere"):
        write_segment(job)


def test_leaving_a_writer_early_leaves_nothing(tmp_path, mixed):
    empty = tmp_path / "empty"
    empty.mkdir()
    table = pq.read_table(mixed.path)
    with SegmentWriter(
        empty, topic="/a/b", topic_id=1, epoch=1, created_ms=1, row_group_bytes=1000
    ) as writer:
        writer.add(table)
        assert os.listdir(empty)
    assert os.listdir(empty) == []


def test_every_changed_byte_is_found(mixed):
    data = Path(mixed.path).read_bytes()
    for position in range(0, len(data), 97):
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        with suppress(Corrupt):
            assert read_facts(bytes(damaged)).checksum != mixed.descriptor.checksum


def test_verifying_names_the_damaged_row_group_and_column(mixed):
    payload = pq.read_metadata(mixed.path).row_group(1).column(9)
    assert payload.path_in_schema == "payload"
    changed(mixed.path, payload.data_page_offset + payload.total_compressed_size - 1, b"\xee")
    findings = verify_segment(mixed.path)
    assert not findings.is_good
    whole, page = findings.problems
    assert mixed.path in whole
    assert "checksum" in whole
    assert "row group 1" in page
    assert "column payload is damaged" in page
    assert findings.messages < 107


def test_a_damaged_page_is_found_though_nothing_is_compressed(make_run, make_job, row):
    converted = write_segment(make_job(make_run([row(os.urandom(1000)) for _ in range(50)])))
    payload = pq.read_metadata(converted.path).row_group(0).column(9)
    changed(converted.path, payload.data_page_offset + payload.total_compressed_size // 2, b"????")
    assert any("column payload is damaged" in problem for problem in verify_segment(converted.path).problems)


@pytest.mark.parametrize("kept", [0, 3, 7, 500, -1, -9])
def test_a_file_cut_short_is_corrupt(mixed, kept):
    data = Path(mixed.path).read_bytes()[:kept]
    Path(mixed.path).write_bytes(data)
    with pytest.raises(Corrupt, match=mixed.path):
        read_facts(mixed.path)
    findings = verify_segment(mixed.path)
    assert not findings.is_good
    assert findings.descriptor is None


def test_a_footer_that_claims_more_than_the_file_has_is_refused_before_it_is_read(mixed):
    data = Path(mixed.path).read_bytes()
    with pytest.raises(Corrupt, match="does not fit"):
        read_facts(data[:-8] + b"\xff\xff\xff\x7fPAR1")


def test_a_missing_file_is_corrupt(tmp_path):
    with pytest.raises(Corrupt, match="missing"):
        read_facts(tmp_path / "gone.parquet")


def rewritten(mixed, tmp_path, table=None, **facts: object) -> bytes:
    """The same segment, made by somebody else: with other columns, or other things said in the footer."""
    table = table if table is not None else pq.read_table(mixed.path)
    path = tmp_path / "rewritten.parquet"
    said = {
        key: value
        for key, value in pq.read_metadata(mixed.path).metadata.items()
        if key.startswith(b"danube.")
    }
    said |= {f"danube.{key}".encode(): str(value).encode() for key, value in facts.items()}
    said = {key: value for key, value in said.items() if value != b"None"}
    with pq.ParquetWriter(path, table.schema) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata(said)
    return path.read_bytes()


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({"topic": None}, "lacks danube.topic"),
        ({"topic": "nonsense"}, "invalid topic name"),
        ({"format_version": 2}, "format version 2"),
        ({"ledger": "7/4"}, "ledger"),
        ({"start_offset": 1}, "107 messages for offsets 1 to 106"),
        ({"start_offset": 1, "end_offset": 107}, "row group 0 has offsets 0 to"),
        ({"epoch": "three"}, "not a number"),
        ({}, "checksum"),
    ],
)
def test_a_file_that_says_what_is_not_so_is_refused(mixed, tmp_path, facts, why):
    data = rewritten(mixed, tmp_path, **facts)
    with pytest.raises(Corrupt, match=why):
        read_facts(data)
    assert not verify_segment(data).is_good


def test_a_file_with_other_columns_is_refused(mixed, tmp_path):
    data = rewritten(mixed, tmp_path, pq.read_table(mixed.path).drop_columns("routing_key"))
    with pytest.raises(Corrupt, match="columns"):
        read_facts(data)


def test_verifying_looks_at_every_offset(mixed, tmp_path):
    table = pq.read_table(mixed.path)
    offsets = table.column("offset").to_pylist()
    offsets[50], offsets[51] = offsets[51], offsets[50]
    swapped = table.set_column(0, SEGMENT_SCHEMA.field(0), pa.array(offsets))
    findings = verify_segment(rewritten(mixed, tmp_path, swapped))
    assert any("offsets do not run from 0 to 106" in problem for problem in findings.problems)


def test_facts_are_read_in_pieces(mixed, monkeypatch):
    monkeypatch.setattr(segment_file, "CHECK_BYTES", 100)
    assert read_facts(mixed.path) == mixed.descriptor


def test_a_segment_made_anew_tells_how_many_messages_were_removed_from_it(mixed, tmp_path):
    spool = tmp_path / "anew"
    spool.mkdir()
    sources = [(Path(mixed.path), mixed.descriptor)]
    chosen = np.array([3, 5, 90])
    (first,) = rewrite_segments(
        sources,
        spool,
        created_ms=1,
        segment_bytes=1 << 30,
        choose=lambda table: np.isin(table.column("offset").to_numpy(), chosen),
        why="erased",
    ).files
    assert first.descriptor.removed_messages == 3
    assert read_facts(first.path) == first.descriptor
    (second,) = rewrite_segments(
        [(Path(first.path), first.descriptor)], spool, created_ms=2, segment_bytes=1 << 30
    ).files
    assert second.descriptor.removed_messages == 3


@pytest.mark.parametrize("removed", [None, 0, 3])
def test_a_descriptor_stays_what_it_is_on_its_way_through_a_service(mixed, removed):
    descriptor = msgspec.structs.replace(mixed.descriptor, removed_messages=removed, etag="e")
    listed = pb.Segment.FromString(listed_segment(descriptor, "/somewhere").SerializeToString())
    assert (descriptor_of(listed), listed.place) == (descriptor, "/somewhere")
