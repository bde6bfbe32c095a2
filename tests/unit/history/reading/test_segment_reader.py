"""Reading segments: what is fetched, what is kept, and what is said of a damaged one."""

import asyncio
import gc
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

from pydanube.history.segment_reader import SegmentReader
from pydanube.kernel.errors import Corrupt, ErrorCode, Unavailable
from pydanube.kernel.names import TopicName
from pydanube.protocol.danube_pb2 import StreamMessage

TOPIC = TopicName("default", "orders")
START_MS = 1_700_000_000_000
ROOM = {"messages_max": 1000, "bytes_max": 1 << 20}


@pytest.fixture
async def reader(store: Any) -> AsyncIterator[SegmentReader]:
    reader = SegmentReader(store, cache_bytes_max=1 << 20)
    yield reader
    await reader.close()


async def _offsets(reader: SegmentReader, segment: Any, offset: int, **limits: int) -> list[int]:
    return [row[0] for row in await reader.read(TOPIC, segment.descriptor, offset, **ROOM | limits)]


async def _settled(reader: SegmentReader, segment: Any, offset: int) -> None:
    """Read a message of a row group that is on its way, so that it has arrived."""
    await reader.read(TOPIC, segment.descriptor, offset, messages_max=1, bytes_max=1)


async def test_a_read_brings_the_messages_of_one_row_group(reader: SegmentReader, make_segment: Any) -> None:
    segment = make_segment(groups=3, rows=10, start=100)
    rows = await reader.read(TOPIC, segment.descriptor, 114, **ROOM)
    assert [(base, append_ms, timed) for base, _, append_ms, timed in rows] == [
        (offset, START_MS + offset, False) for offset in range(114, 120)
    ]
    assert [StreamMessage.FromString(row[1]).payload for row in rows] == [
        b"payload %d" % offset for offset in range(114, 120)
    ]


async def test_every_message_is_read_once_in_order(reader: SegmentReader, make_segment: Any) -> None:
    segment = make_segment(groups=3, rows=10, start=100)
    found: list[int] = []
    while len(found) < 30:
        found += await _offsets(reader, segment, 100 + len(found), messages_max=7)
    assert found == list(range(100, 130))


async def test_what_is_forgotten_is_freed_without_a_collection(
    reader: SegmentReader, make_segment: Any
) -> None:
    segment = make_segment(groups=1, rows=10)
    gc.collect()
    gc.disable()
    try:
        before = _metadata_alive()
        await _offsets(reader, segment, 100)
        assert _metadata_alive() == before + 1
        reader.forget(TOPIC, segment.descriptor)
        await asyncio.sleep(0)
        assert _metadata_alive() == before
    finally:
        gc.enable()


def _metadata_alive() -> int:
    return sum(isinstance(each, pq.FileMetaData) for each in gc.get_objects())


async def test_a_row_group_is_one_read_and_stays(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=1, rows=10)
    await _offsets(reader, segment, 100, messages_max=4)
    fetched = list(store.reads)
    await _offsets(reader, segment, 104)
    await _offsets(reader, segment, 100)
    assert len(fetched) == 2  # the footer, the row group
    assert store.reads == fetched


async def test_readers_of_one_row_group_share_a_fetch(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=1, rows=10)
    answers = await asyncio.gather(*[_offsets(reader, segment, 100 + number) for number in range(5)])
    assert [answer[0] for answer in answers] == [100, 101, 102, 103, 104]
    assert len(store.reads) == 2


async def test_a_reader_that_gives_up_does_not_take_the_fetch_from_others(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=1, rows=10)
    store.gate.clear()
    first = asyncio.create_task(_offsets(reader, segment, 100))
    second = asyncio.create_task(_offsets(reader, segment, 101))
    while not store.reads:
        await asyncio.sleep(0)
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    store.gate.set()
    assert first.cancelled()
    assert (await second)[0] == 101
    assert len(store.reads) == 2


async def test_the_next_row_groups_come_ahead_of_a_sequential_reader(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=4, rows=10, start=100)
    await _offsets(reader, segment, 101, messages_max=3)
    assert len(store.reads) == 2
    await _offsets(reader, segment, 104, messages_max=3)
    await _settled(reader, segment, 110)
    await _settled(reader, segment, 120)
    assert len(store.reads) == 4  # two ahead, not more, and the reader inside them fetched nothing itself


async def test_they_come_at_once_for_who_begins_with_the_segment(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=4, rows=10, start=100)
    assert await _offsets(reader, segment, 100, messages_max=3) == [100, 101, 102]
    assert len(store.reads) == 4, "the footer, the row group and two more"


async def test_a_reader_whose_rows_are_ready_lets_others_go_on(
    reader: SegmentReader, make_segment: Any
) -> None:
    segment = make_segment(groups=1, rows=10)
    await _offsets(reader, segment, 100, messages_max=1)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    for offset in range(101, 110):
        assert await _offsets(reader, segment, offset, messages_max=1) == [offset]
    task.cancel()
    assert turns >= 9


async def test_a_reader_that_jumps_gets_nothing_ahead(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=4, rows=10, start=100)
    await _offsets(reader, segment, 102, messages_max=3)
    await _offsets(reader, segment, 107, messages_max=3)
    await _offsets(reader, segment, 101, messages_max=3)
    await asyncio.sleep(0)
    assert len(store.reads) == 2


async def test_a_failed_fetch_ahead_is_the_business_of_whoever_comes_there(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=2, rows=10, start=100)
    await _offsets(reader, segment, 101, messages_max=2)
    store.failure = Unavailable("the store is away", ErrorCode.STORAGE_FAILED)
    assert await _offsets(reader, segment, 103, messages_max=3) == [103, 104, 105]
    while len(store.reads) < 3:
        await asyncio.sleep(0)
    with pytest.raises(Unavailable, match="the store is away"):
        await _offsets(reader, segment, 110)
    store.failure = None
    assert (await _offsets(reader, segment, 110))[0] == 110


async def test_memory_stays_within_its_bound_however_far_a_reader_goes(store: Any, make_segment: Any) -> None:
    segment = make_segment(groups=40, rows=50)
    probe = SegmentReader(store, cache_bytes_max=1 << 30)
    await _offsets(probe, segment, 100)
    group_bytes = probe.memory_bytes
    reader = SegmentReader(store, cache_bytes_max=4 * group_bytes)
    offset, largest = 100, 0
    while offset < segment.descriptor.next_offset:
        offset = (await _offsets(reader, segment, offset, messages_max=20))[-1] + 1
        largest = max(largest, reader.memory_bytes)
    assert group_bytes < largest <= 4 * group_bytes
    await reader.close()
    await probe.close()
    assert reader.memory_bytes == 0


async def test_a_row_group_larger_than_the_cache_is_still_read_and_fetched_once(
    store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=2, rows=10, start=100)
    reader = SegmentReader(store, cache_bytes_max=1)
    found: list[int] = []
    while len(found) < 20:
        found += await _offsets(reader, segment, 100 + len(found), messages_max=3)
    assert found == list(range(100, 120))
    assert len(store.reads) == 3
    await reader.close()


async def test_loads_wait_while_others_take_all_memory(store: Any, make_segment: Any) -> None:
    segments = [make_segment(groups=1, rows=50, start=1000 * number) for number in range(5)]
    reader = SegmentReader(store, cache_bytes_max=1)
    for segment in segments:  # later than all of it, so that only the footer is fetched
        await reader.find_time(TOPIC, segment.descriptor, segment.descriptor.max_append_ms + 1)
    store.reads.clear()
    store.gate.clear()
    reading = [
        asyncio.create_task(_offsets(reader, segment, segment.descriptor.start_offset))
        for segment in segments
    ]
    for _ in range(100):
        await asyncio.sleep(0)
    assert len(store.reads) == 1
    store.gate.set()
    assert [offsets[0] for offsets in await asyncio.gather(*reading)] == [0, 1000, 2000, 3000, 4000]
    await reader.close()


async def test_a_forgotten_segment_is_fetched_again(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=1)
    await _offsets(reader, segment, 100)
    reader.forget(TOPIC, segment.descriptor)
    assert reader.memory_bytes == 0
    await _offsets(reader, segment, 100)
    assert len(store.reads) == 4


async def test_a_segment_forgotten_while_it_is_fetched_does_not_stay(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=1)
    await reader.find_time(TOPIC, segment.descriptor, segment.descriptor.max_append_ms + 1)
    store.gate.clear()
    reading = asyncio.create_task(_offsets(reader, segment, 100))
    while len(store.reads) < 2:
        await asyncio.sleep(0)
    reader.forget(TOPIC, segment.descriptor)
    store.gate.set()
    assert (await reading)[0] == 100
    assert reader.memory_bytes == 0


@pytest.mark.parametrize(
    ("append_ms", "expected"),
    [(0, 100), (START_MS + 100, 100), (START_MS + 117, 117), (START_MS + 129, 129), (START_MS + 130, 130)],
)
async def test_a_time_is_found(
    reader: SegmentReader, make_segment: Any, append_ms: int, expected: int
) -> None:
    segment = make_segment(groups=3, rows=10, start=100)
    assert await reader.find_time(TOPIC, segment.descriptor, append_ms) == expected


async def test_the_first_offset_in_log_order_is_found_where_times_go_back(
    reader: SegmentReader, make_segment: Any, make_message: Any
) -> None:
    times = [5, 9, 3, 4, 8, 2]
    messages = [make_message(n, append_time=START_MS + time, request_id=1) for n, time in enumerate(times)]
    segment = make_segment(messages=messages, rows=2)
    found = [await reader.find_time(TOPIC, segment.descriptor, START_MS + time) for time in range(2, 11)]
    assert found == [0, 0, 0, 0, 1, 1, 1, 1, 6]


async def test_looking_for_a_time_fetches_one_row_group(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment(groups=5, rows=10, start=100)
    await reader.find_time(TOPIC, segment.descriptor, START_MS + 145)
    assert len(store.reads) == 2


async def test_trouble_of_the_store_passes_through_and_is_not_remembered(
    reader: SegmentReader, store: Any, make_segment: Any
) -> None:
    segment = make_segment()
    store.failure = Unavailable("the store is away", ErrorCode.STORAGE_FAILED)
    with pytest.raises(Unavailable, match="the store is away"):
        await _offsets(reader, segment, 100)
    store.failure = None
    assert (await _offsets(reader, segment, 100))[0] == 100


def _corrupt(error: pytest.ExceptionInfo[Corrupt], segment: Any) -> str:
    assert error.value.code is ErrorCode.SEGMENT_CORRUPT
    assert f"memory:{segment.key}" in error.value.text
    return error.value.text


async def test_a_flipped_bit_in_a_page_names_row_group_and_bytes(
    reader: SegmentReader, make_segment: Any
) -> None:
    segment = make_segment(groups=3, rows=10, start=100)
    position = segment.data.index(b"payload 115")
    segment.data = segment.data[:position] + b"q" + segment.data[position + 1 :]
    assert (await _offsets(reader, segment, 100))[0] == 100
    with pytest.raises(Corrupt) as error:
        await _offsets(reader, segment, 112)
    text = _corrupt(error, segment)
    assert "row group 1 (bytes " in text
    assert "restore it from a copy" in text


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda data: data[:-4] + b"PARX", "does not end at byte"),
        (lambda data: data[:-8] + b"\xff\xff\xff\x7f" + data[-4:], "a footer of 2147483647 bytes"),
        (lambda data: data[:-8] + b"\0\0\0\0" + data[-4:], "a footer of 0 bytes"),
        (lambda data: data[:-108] + bytes(100) + data[-8:], "is damaged"),
        (lambda data: data[:-1], "shorter"),
    ],
)
async def test_a_damaged_footer_is_told(
    reader: SegmentReader, make_segment: Any, change: Callable[[bytes], bytes], why: str
) -> None:
    segment = make_segment()
    segment.data = change(segment.data)
    with pytest.raises(Corrupt, match=why) as error:
        await _offsets(reader, segment, 100)
    _corrupt(error, segment)


@pytest.mark.parametrize("difference", [-4, -1, 1])
async def test_an_object_of_another_size_than_its_descriptor_says_is_refused(
    reader: SegmentReader, make_segment: Any, difference: int
) -> None:
    segment = make_segment()
    descriptor = msgspec.structs.replace(segment.descriptor, size=len(segment.data) + difference)
    with pytest.raises(Corrupt, match=r"does not end at byte|is shorter than"):
        await reader.read(TOPIC, descriptor, 100, **ROOM)


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ({"danube.topic": "/default/other"}, "its danube.topic is '/default/other', not '/default/orders'"),
        ({"danube.topic_id": "8"}, "its danube.topic_id is '8', not '7'"),
        ({"danube.epoch": "9"}, "its danube.epoch is '9', not '3'"),
        ({"danube.start_offset": "0"}, "its danube.start_offset is '0', not '100'"),
        ({"danube.end_offset": ""}, "its danube.end_offset is '', not '129'"),
        ({"danube.format_version": "2"}, "its format version is '2', this release reads 1"),
    ],
)
async def test_a_file_of_something_else_is_refused(
    reader: SegmentReader, make_segment: Any, metadata: dict[str, str], why: str
) -> None:
    segment = make_segment(metadata=metadata)
    with pytest.raises(Corrupt, match=why) as error:
        await _offsets(reader, segment, 100)
    _corrupt(error, segment)


async def test_fewer_messages_than_the_descriptor_says_are_refused(
    reader: SegmentReader, make_segment: Any
) -> None:
    segment = make_segment(groups=3, rows=10, end_offset=130, metadata={"danube.end_offset": "130"})
    with pytest.raises(Corrupt, match="it holds 30 messages, not 31"):
        await _offsets(reader, segment, 100)


async def test_offsets_with_a_gap_are_refused(
    reader: SegmentReader, make_segment: Any, make_message: Any
) -> None:
    messages = [make_message(offset, request_id=1) for offset in (0, 1, 3, 4, 4)]
    segment = make_segment(messages=messages, rows=10)
    with pytest.raises(Corrupt, match=r"row group 0 .*: its offsets are not 0 to 4"):
        await _offsets(reader, segment, 0)


async def test_times_beyond_those_of_the_descriptor_are_refused(
    reader: SegmentReader, make_segment: Any
) -> None:
    segment = make_segment(max_append_ms=START_MS + 500)
    with pytest.raises(Corrupt, match="its times of append are"):
        await reader.find_time(TOPIC, segment.descriptor, START_MS + 400)


async def test_a_payload_dictionary_is_refused_before_it_can_fill_the_memory(
    reader: SegmentReader, make_segment: Any, make_message: Any
) -> None:
    messages = [make_message(offset, request_id=1, payload=bytes(10_000)) for offset in range(100)]
    segment = make_segment(messages=messages, rows=100, writing={"use_dictionary": ["payload"]})
    with pytest.raises(Corrupt, match="row group 0 has payload as a dictionary"):
        await _offsets(reader, segment, 0)
