"""The options of reading: what is accepted, and how what is not is refused."""

from datetime import UTC, datetime

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.spark.source.offsets import Wanted
from pydanube.spark.source.options import ALL_COLUMNS, parse_options
from pydanube.spark.topics import TopicPart

PARTS = [TopicPart("/default/t", number, f"/default/t-part-{number}") for number in (0, 1)]
AVAILABLE = range(10, 90)


def wanted(**options: str) -> tuple[Wanted, Wanted]:
    parsed = parse_options({"topic": "/default/t", **options})
    return parsed.start, parsed.end


def offsets(place: Wanted) -> list[int]:
    return [place.offset(part, AVAILABLE, lambda append_ms: append_ms) for part in PARTS]


def test_everything_is_the_default() -> None:
    start, end = wanted()
    assert (offsets(start), offsets(end)) == ([10, 10], [90, 90])
    assert parse_options({"TOPIC": " /default/t , /default/u"}).topics == ("/default/t", "/default/u")
    assert parse_options({"path": "/default/t"}).columns == ALL_COLUMNS


def test_offsets_by_partition_or_by_the_name_of_a_part() -> None:
    start, end = wanted(
        startingOffsets='{"/default/t": {"0": 12, "1": "latest"}}', endingOffsets='{"/default/t-part-1": 20}'
    )
    assert (offsets(start), offsets(end)) == ([12, 90], [90, 20])


def test_moments() -> None:
    ms = 1_767_225_600_000
    for text in ("2026-01-01", "2026-01-01T00:00:00Z", "2026-01-01T01:00:00+01:00", str(ms)):
        assert offsets(wanted(startingTimestamp=text)[0]) == [ms, ms]
    assert Wanted.of(datetime(2026, 1, 1, tzinfo=UTC), otherwise="earliest", what="start").append_ms == ms


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "none is set: set exactly one of topic"),
        ({"topic": "/default/t", "topics": "/default/u"}, "topic and topics are set"),
        ({"topic": "/default/t", "startingOffset": "earliest"}, "did you mean startingOffsets?"),
        (
            {"topic": "/default/t", "startingOffsets": "first"},
            "invalid startingOffsets 'first': expected earliest",
        ),
        ({"topic": "/default/t", "startingOffsets": '{"/default/t": -1}'}, "invalid offset -1 of /default/t"),
        ({"topic": "/default/t", "endingOffsets": "latest", "endingTimestamp": "1"}, "both set: keep one"),
        ({"topic": "/default/t", "startingTimestamp": "soon"}, "invalid startingTimestamp 'soon'"),
        ({"topic": "/default/t", "maxMessagesPerTrigger": "0"}, "invalid maxMessagesPerTrigger '0'"),
        ({"topic": "/default/t", "failOnDataLoss": "maybe"}, "expected true or false"),
        ({"topic": "/default/t", "readFrom": "disk"}, "expected one of auto, store, broker"),
        ({"topic": "/default/t", "columns": "offset,payloads"}, "did you mean payload?"),
        ({"ranges": "[1]"}, "invalid ranges"),
    ],
)
def test_mistakes_are_named(options: dict[str, str], text: str) -> None:
    with pytest.raises(Rejected) as refused:
        parse_options(options)
    assert text in refused.value.text


def test_positions_of_what_is_not_read_are_refused() -> None:
    for given, text in (
        ({"/default/t": 1}, "has 2 partitions"),
        ({"/default/other": 1}, "which is not read"),
        ({"/default/t": {"7": 1}}, "names partition 7 of /default/t"),
    ):
        with pytest.raises(Rejected, match=text):
            Wanted.of(given, otherwise="earliest", what="start").check(PARTS, what="start")
