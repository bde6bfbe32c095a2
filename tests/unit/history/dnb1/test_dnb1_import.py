"""History of a Danube broker becomes segments: offsets kept where that can be, and never a silent guess."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pydanube.history.columns import SEGMENT_SCHEMA
from pydanube.history.dnb1_import import ImportReport, import_dnb1
from pydanube.kernel.errors import Corrupt, ErrorCode, Rejected, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.protocol.dnb1 import Message, encode_frame, encode_message

TOPIC = TopicName("default", "orders")
Frames = Callable[..., bytes]
MakeMessage = Callable[..., Message]


def run(source: Path, spool: Path, **options: Any) -> ImportReport:
    return import_dnb1(source, spool, topic=TOPIC, topic_id=9, created_ms=1_800_000_000_000, **options)


def table(spool: Path, report: ImportReport) -> pa.Table:
    return pa.concat_tables([pq.read_table(spool / segment.segment_id) for segment in report.segments])


def payloads(spool: Path, report: ImportReport) -> list[str]:
    found = table(spool, report)
    offsets = found.column("offset").to_pylist()
    assert offsets == list(range(report.start_offset, report.next_offset))
    return [payload.decode() for payload in found.column("payload").to_pylist()]


def named(offsets: Any) -> list[str]:
    return [f"message {offset}" for offset in offsets]


def test_log_files_in_the_order_they_were_written(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "wal.log").write_bytes(make_frames(range(5)))
    for sequence in range(1, 12):
        (source / f"wal.{sequence}.log").write_bytes(make_frames(range(5 * sequence, 5 * sequence + 5)))

    report = run(source, spool)

    assert payloads(spool, report) == named(range(60))
    assert (report.kept, report.renumbered, report.out_of_order) == (60, 0, [])
    assert [file.path.name for file in report.files[:3]] == ["wal.log", "wal.1.log", "wal.2.log"]
    assert report.source_topic == "/default/orders"


@pytest.mark.parametrize("folder", ["", "segments", "objects"])
def test_segments_from_any_offset_on(source: Path, spool: Path, make_frames: Frames, folder: str) -> None:
    (source / folder).mkdir(exist_ok=True)
    (source / folder / "data-100-1700000000.dnb1").write_bytes(make_frames(range(100, 110)))
    (source / folder / "data-90-99.dnb1").write_bytes(make_frames(range(90, 100)))

    report = run(source, spool)

    assert (report.start_offset, report.next_offset, report.kept) == (90, 110, 20)
    assert payloads(spool, report) == named(range(90, 110))


def test_every_field_arrives(source: Path, spool: Path, make_message: MakeMessage) -> None:
    full = make_message(0)._replace(
        request_id=2**64 - 1,
        producer_id=2**63,
        publish_time=2**64 - 1,
        subscription_name="s",
        attributes=(("b", "1"), ("a", "2")),
        schema_id=2**64 - 2,
        schema_version=2**32 - 1,
        routing_key="",
    )
    plain = make_message(1)
    (source / "wal.log").write_bytes(
        encode_frame(0, encode_message(full)) + encode_frame(1, encode_message(plain))
    )

    found = table(spool, run(source, spool))

    for name in ("publish_time", "append_time"):
        assert found.column(name).cast(pa.int64()).to_pylist() == [2**63 - 1, 1_700_000_000_001]
    assert found.drop_columns(["publish_time", "append_time"]).to_pylist() == [
        {
            "offset": 0,
            "producer_name": "p",
            "routing_key": "",
            "attributes": [("b", "1"), ("a", "2")],
            "schema_id": -2,
            "schema_version": 2**32 - 1,
            "payload": b"message 0",
            "producer_id": -(2**63),
            "request_id": -1,
            "broker_addr": "b:6650",
            "subscription_name": "s",
        },
        {
            "offset": 1,
            "producer_name": "p",
            "routing_key": None,
            "attributes": None,
            "schema_id": None,
            "schema_version": None,
            "payload": b"message 1",
            "producer_id": 7,
            "request_id": 1001,
            "broker_addr": "b:6650",
            "subscription_name": "",
        },
    ]
    assert found.schema.names == SEGMENT_SCHEMA.names


def test_segments_and_log_files_that_overlap_are_joined(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    (source / "segments").mkdir()
    (source / "segments" / "data-0-1700000000.dnb1").write_bytes(make_frames(range(10)))
    (source / "segments" / "data-4-1700000300.dnb1").write_bytes(make_frames(range(4, 14)))
    (source / "segments" / "data-4-1700000600.dnb1").write_bytes(make_frames(range(4, 14)))
    (source / "wal.log").write_bytes(make_frames(range(8, 20)))

    report = run(source, spool)

    assert payloads(spool, report) == named(range(20))
    assert report.duplicates == 6 + 6
    assert [path.name for path in report.identical_files] == ["data-4-1700000600.dnb1"]


def test_a_segment_inside_another_opens_no_gap(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "data-0-1.dnb1").write_bytes(make_frames(range(10)))
    (source / "data-2-2.dnb1").write_bytes(make_frames(range(2, 4)))
    (source / "data-10-3.dnb1").write_bytes(make_frames(range(10, 15)))

    assert payloads(spool, run(source, spool)) == named(range(15))


def test_a_torn_tail_is_cut_and_reported(source: Path, spool: Path, make_frames: Frames) -> None:
    whole = make_frames(range(5))
    (source / "wal.log").write_bytes(whole + make_frames([5])[:30])

    report = run(source, spool)

    assert payloads(spool, report) == named(range(5))
    assert (report.torn_bytes, report.skipped_bytes) == (30, 0)


def test_a_log_file_that_has_only_a_torn_frame_does_no_harm(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    (source / "wal.log").write_bytes(make_frames(range(5)))
    (source / "wal.1.log").write_bytes(make_frames([5])[:30])

    assert payloads(spool, run(source, spool)) == named(range(5))


def test_zeros_of_a_power_cut_are_a_torn_tail(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "wal.log").write_bytes(make_frames(range(5)) + bytes(5000))

    report = run(source, spool)

    assert (report.messages, report.torn_bytes) == (5, 5000)


def damaged_in_the_middle(make_frames: Frames) -> tuple[bytes, int, int]:
    """Frames 0 to 9 with a flipped bit in 4, and where that one begins and ends."""
    data = bytearray(make_frames(range(10)))
    start, end = len(make_frames(range(4))), len(make_frames(range(5)))
    data[start + 30] ^= 1
    return bytes(data), start, end


def test_damage_in_the_middle_is_refused_by_name(source: Path, spool: Path, make_frames: Frames) -> None:
    data, start, end = damaged_in_the_middle(make_frames)
    (source / "wal.log").write_bytes(data)

    with pytest.raises(
        Corrupt, match=rf"wal\.log: the frame at byte {start} is damaged.*go on at byte {end}"
    ) as caught:
        run(source, spool)

    assert caught.value.code is ErrorCode.SEGMENT_CORRUPT
    assert "skip_damaged" in caught.value.text
    assert list(spool.iterdir()) == []


def test_damage_may_be_left_out_and_is_reported(source: Path, spool: Path, make_frames: Frames) -> None:
    data, start, end = damaged_in_the_middle(make_frames)
    (source / "wal.log").write_bytes(data)

    report = run(source, spool, skip_damaged=True)

    assert payloads(spool, report) == named([0, 1, 2, 3, 5, 6, 7, 8, 9])
    assert (report.kept, report.renumbered, report.skipped_bytes) == (4, 5, end - start)
    assert [(damage.position, damage.size) for damage in report.files[0].damages] == [(start, end - start)]


@pytest.mark.parametrize("first", [True, False])
def test_damage_at_either_side_of_two_files_explains_what_is_missing(
    source: Path, spool: Path, make_frames: Frames, first: bool
) -> None:
    cut, damaged = make_frames([4])[:-1], b"\1" + make_frames([4])[1:-1]
    (source / "wal.log").write_bytes(make_frames(range(4)) + (cut if first else b""))
    (source / "wal.1.log").write_bytes((b"" if first else damaged) + make_frames(range(5, 8)))

    with pytest.raises(Corrupt, match="which ends in a torn frame, and" if first else "byte 0 is damaged"):
        run(source, spool)
    report = run(source, spool, skip_damaged=True)

    assert payloads(spool, report) == named([0, 1, 2, 3, 5, 6, 7])
    assert report.renumbered == 3


def test_what_is_damaged_in_one_file_comes_from_another(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    data, _, _ = damaged_in_the_middle(make_frames)
    (source / "wal.log").write_bytes(data)
    (source / "data-0-1700000000.dnb1").write_bytes(make_frames(range(6)))

    report = run(source, spool, skip_damaged=True)

    assert payloads(spool, report) == named(range(10))
    assert report.renumbered == 0


def test_a_frame_that_holds_no_message_is_damage_too(source: Path, spool: Path, make_frames: Frames) -> None:
    body = b"\xff" * 40
    odd = struct.pack("<QII", 3, len(body), crc32(body)) + body
    (source / "wal.log").write_bytes(make_frames(range(3)) + odd + make_frames(range(4, 6)))

    with pytest.raises(
        Corrupt, match=f"frame at byte {len(make_frames(range(3)))} is damaged.*begins with 0xff"
    ):
        run(source, spool)
    report = run(source, spool, skip_damaged=True)

    assert payloads(spool, report) == named([0, 1, 2, 4, 5])
    assert (report.skipped_messages, report.renumbered) == (1, 2)


def test_frames_appended_behind_a_torn_one_are_not_lost(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    """A Danube broker does not cut a torn frame and cannot read what it writes behind it (H-04)."""
    torn = make_frames([5], b"x" * 1000)[:40]
    (source / "wal.log").write_bytes(make_frames(range(5)) + torn + make_frames(range(5, 8)))

    with pytest.raises(Corrupt, match="the file ends inside it; whole frames go on at byte"):
        run(source, spool)
    report = run(source, spool, skip_damaged=True)

    assert payloads(spool, report) == named(range(8))
    assert (report.skipped_bytes, report.renumbered) == (40, 0)


def test_numbering_that_restarts_is_refused_and_explained(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    """A Danube broker numbers from 0 again after a restart (H-02)."""
    (source / "wal.log").write_bytes(make_frames(range(10)) + make_frames(range(4), b"after the restart"))

    with pytest.raises(
        Corrupt, match=r"offset 0 has two different messages: .* at byte 0 and .* numbers from 0 again"
    ):
        run(source, spool)
    assert list(spool.iterdir()) == []


def test_numbering_that_restarts_may_be_renumbered(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "wal.log").write_bytes(make_frames(range(10)))
    (source / "wal.1.log").write_bytes(make_frames(range(4), b"after the restart"))

    report = run(source, spool, renumber=True)

    assert payloads(spool, report) == named(range(10)) + ["after the restart"] * 4
    assert (report.kept, report.renumbered, report.duplicates) == (10, 4, 0)


def test_frames_out_of_order_are_refused_and_explained(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    """Publishers at the same time leave frames out of order in a Danube broker's files (H-20)."""
    (source / "wal.log").write_bytes(make_frames([0, 1, 3, 2, 4, 7, 6, 5, 8]))

    position = len(make_frames([0, 1, 3]))
    expected = (
        f"offset 2 at byte {position} comes behind higher ones, and so do 2 other messages.*reorder.*renumber"
    )
    with pytest.raises(Corrupt, match=expected):
        run(source, spool)


def test_frames_out_of_order_may_go_back_to_their_places(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    (source / "wal.log").write_bytes(make_frames([0, 1, 3, 2, 4, 7, 6, 5, 8]))
    (source / "wal.1.log").write_bytes(make_frames([10, 9, 11]))

    report = run(source, spool, reorder=True)

    assert payloads(spool, report) == named(range(12))
    assert [stretch.first for stretch in report.out_of_order] == [2, 6, 5, 9]
    assert (report.kept, report.renumbered) == (12, 0)


def test_log_files_that_go_back_are_refused(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "wal.log").write_bytes(make_frames(range(5, 9)))
    (source / "wal.1.log").write_bytes(make_frames(range(5)))

    with pytest.raises(Corrupt, match=r"wal\.1\.log: offset 0 at byte 0 comes behind higher ones"):
        run(source, spool)


def test_frames_written_once_more_are_copies_not_disorder(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    """A Danube broker whose write failed writes its buffer again (H-21)."""
    (source / "wal.log").write_bytes(make_frames(range(9)) + make_frames(range(5, 12)))

    report = run(source, spool)

    assert payloads(spool, report) == named(range(12))
    assert report.duplicates == 4


def test_sorting_does_not_choose_between_two_messages(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "wal.log").write_bytes(make_frames([1, 0, 2]) + make_frames([2], b"another"))

    with pytest.raises(Corrupt, match="offset 2 has two different messages"):
        run(source, spool, reorder=True)
    with pytest.raises(Rejected, match="choose one"):
        run(source, spool, reorder=True, renumber=True)


def test_frames_in_a_file_that_should_not_have_them(source: Path, spool: Path, make_frames: Frames) -> None:
    """A rotation of a Danube broker leaves an empty file and puts its frames into the next one (H-19)."""
    (source / "wal.log").write_bytes(b"")
    (source / "wal.1.log").write_bytes(make_frames(range(6)))
    (source / "data-3-1700000000.dnb1").write_bytes(make_frames(range(6)))

    report = run(source, spool)

    assert payloads(spool, report) == named(range(6))


def test_missing_offsets_are_refused_unless_new_ones_are_allowed(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    (source / "data-10-19.dnb1").write_bytes(make_frames(range(10, 20)))
    (source / "data-30-39.dnb1").write_bytes(make_frames(range(30, 40)))

    for options in ({}, {"skip_damaged": True}):
        with pytest.raises(Corrupt, match=r"offsets 20 to 29 are missing between .*data-10-19.*data-30-39"):
            run(source, spool, **options)
    report = run(source, spool, renumber=True)

    assert payloads(spool, report) == named([*range(10, 20), *range(30, 40)])
    assert (report.start_offset, report.kept, report.renumbered) == (10, 10, 10)


def test_a_flipped_offset_is_not_believed(source: Path, spool: Path, make_frames: Frames) -> None:
    data = bytearray(make_frames(range(3)))
    data[7] ^= 0x80
    (source / "wal.log").write_bytes(data)

    with pytest.raises(Corrupt, match="offset 9223372036854775808 at byte 0 cannot be"):
        run(source, spool)
    assert payloads(spool, run(source, spool, renumber=True)) == named(range(3))


def test_two_topics_are_not_mixed(source: Path, spool: Path, make_message: MakeMessage) -> None:
    both = [make_message(0), make_message(1, topic="/default/other")]
    (source / "wal.log").write_bytes(
        b"".join([encode_frame(m.topic_offset, encode_message(m)) for m in both])
    )

    with pytest.raises(Corrupt, match="is of topic /default/other, those before it of /default/orders"):
        run(source, spool)


def test_attributes_that_would_delay_or_expire_messages_are_renamed(
    source: Path, spool: Path, make_message: MakeMessage
) -> None:
    given = make_message(0)._replace(attributes=(("x-ttl", "one day"), ("x", "y")))
    (source / "wal.log").write_bytes(encode_frame(0, encode_message(given)))

    report = run(source, spool)

    assert table(spool, report).column("attributes").to_pylist() == [
        [("imported-x-ttl", "one day"), ("x", "y")]
    ]
    assert report.renamed_attributes == 1


def test_large_sources_become_several_segments(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "wal.log").write_bytes(make_frames(range(20_000)))

    report = run(source, spool, segment_bytes=100_000)

    assert len(report.segments) > 1
    assert payloads(spool, report) == named(range(20_000))
    assert sum(segment.payload_bytes for segment in report.segments) == report.payload_bytes


def test_nothing_stays_behind_when_a_later_segment_fails(
    source: Path, spool: Path, make_frames: Frames
) -> None:
    (source / "wal.log").write_bytes(make_frames(range(20_000)) + make_frames([19_999], b"another"))

    with pytest.raises(Corrupt, match="offset 19999 has two different messages"):
        run(source, spool, segment_bytes=100_000)

    assert list(spool.iterdir()) == []


def checkpoint(names: list[str]) -> bytes:
    def text(value: str) -> bytes:
        return bytes([len(value)]) + value.encode()

    rotated = b"".join(
        [bytes([number]) + text(f"/gone/{name}") + b"\0" for number, name in enumerate(names[:-1])]
    )
    active = text(f"/gone/{names[-1]}")
    return bytes([0, 9, len(names) - 1]) + active + bytes([len(names) - 1]) + rotated + b"\0\0\0"


def test_a_checkpoint_tells_files_of_other_names(source: Path, spool: Path, make_frames: Frames) -> None:
    (source / "orders.dat").write_bytes(make_frames(range(5)))
    (source / "archive.dat").write_bytes(make_frames(range(5, 9)))
    (source / "wal.ckpt").write_bytes(checkpoint(["orders.dat", "missing.dat", "archive.dat"]))

    assert payloads(spool, run(source, spool)) == named(range(9))


@pytest.mark.parametrize("data", [b"", b"\xff" * 50])
def test_a_damaged_checkpoint_does_no_harm(
    source: Path, spool: Path, make_frames: Frames, data: bytes
) -> None:
    (source / "wal.log").write_bytes(make_frames(range(5)))
    (source / "wal.ckpt").write_bytes(data)

    assert run(source, spool).messages == 5


def test_a_folder_of_something_else_is_refused(source: Path, spool: Path) -> None:
    (source / "notes.txt").write_text("hello")

    with pytest.raises(Rejected, match="holds no file of a Danube topic"):
        run(source, spool)


@pytest.mark.parametrize(
    ("data", "text"), [(b"", "no whole message"), (b"only text" * 30, "not one frame of a Danube broker")]
)
def test_a_log_without_messages_is_refused(source: Path, spool: Path, data: bytes, text: str) -> None:
    (source / "wal.log").write_bytes(data)

    with pytest.raises(Corrupt, match=text):
        run(source, spool)


def test_a_folder_that_is_not_there_is_named(tmp_path: Path, spool: Path) -> None:
    with pytest.raises(Unavailable, match="nowhere cannot be read: No such file or directory"):
        run(tmp_path / "nowhere", spool)


def test_progress_covers_files_and_frames(source: Path, spool: Path, make_frames: Frames) -> None:
    data = make_frames(range(10))
    (source / "wal.log").write_bytes(data)
    seen: list[int] = []

    report = run(source, spool, on_progress=seen.append)

    assert sum(seen) == 2 * len(data) == len(data) + report.frame_bytes
