"""From names and patterns to what holds the messages."""

import pytest
from spark_harness.broker_process import BrokerProcess

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.spark.topics import TopicPart, matching, resolve, storage_of


@pytest.fixture(scope="module", autouse=True)
def topics(broker: BrokerProcess) -> None:
    broker.publish("/default/plain", [b"1", b"2"])
    broker.publish("/default/split", [b"1"], partitions=2)


PLAIN = TopicPart("/default/plain", 0, "/default/plain")
SPLIT = [TopicPart("/default/split", number, f"/default/split-part-{number}") for number in (0, 1)]


def test_a_topic_stands_for_its_partitions(broker: BrokerProcess) -> None:
    with broker.client() as client:
        assert resolve(client, ["/default/split", "/default/plain"]) == [PLAIN, *SPLIT]
        assert resolve(client, ["/default/split-part-1"]) == SPLIT[1:]


def test_a_pattern_finds_topics_by_their_whole_name(broker: BrokerProcess) -> None:
    with broker.client() as client:
        assert matching(client, "/default/(plain|spl.*)") == [PLAIN, *SPLIT]
        assert matching(client, "/default/pla") == []


@pytest.mark.parametrize("pattern", ["orders", ".*", "/default/("])
def test_a_pattern_that_cannot_be_used_is_refused(broker: BrokerProcess, pattern: str) -> None:
    with broker.client() as client, pytest.raises(Rejected, match="invalid topic pattern"):
        matching(client, pattern)


def test_an_unknown_topic_is_refused(broker: BrokerProcess) -> None:
    with broker.client() as client, pytest.raises(Rejected, match="/default/none does not exist") as refused:
        resolve(client, ["/default/none"])
    assert refused.value.code is ErrorCode.TOPIC_UNKNOWN


def test_storage_is_told_by_name(broker: BrokerProcess) -> None:
    with broker.client() as client:
        assert storage_of(client, [PLAIN])["/default/plain"].next_offset == 2
