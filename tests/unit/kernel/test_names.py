import pytest

from pydanube.kernel.errors import ErrorCode, Rejected, Status
from pydanube.kernel.names import TopicName, check_name


@pytest.mark.parametrize("text", ["/default/orders", "/ns-1/a_b-c", "/größe/été", "/default/x-part-0"])
def test_a_valid_name_comes_back_as_it_was(text: str) -> None:
    assert str(TopicName.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["", "/", "//", "orders", "default/orders", "a/b/c", "/default", "/default/", "//orders", "/a/b/c", "/a/b.c", "/a/b c",
     "/a/b:c", "/a/b\n", "/a/" + "x" * 300],
)  # fmt: skip
def test_an_invalid_name_is_refused_with_the_rule(text: str) -> None:
    with pytest.raises(Rejected, match="expected /namespace/topic") as refused:
        TopicName.parse(text)
    assert refused.value.code is ErrorCode.TOPIC_NAME_INVALID
    assert refused.value.status is Status.INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("topic", "base", "number"),
    [
        ("/d/foo-part-0", "/d/foo", 0),
        ("/d/foo-part-12", "/d/foo", 12),
        ("/d/foo-part-1-part-2", "/d/foo-part-1", 2),
        ("/d/foo-part-", None, None),
        ("/d/foo-part-x", None, None),
        ("/d/foo-part-01", None, None),
        ("/d/-part-1", None, None),
        ("/d/foo-part-1x", None, None),
        ("/d/foo", None, None),
    ],
)
def test_a_partition_is_told_by_its_whole_name(topic: str, base: str | None, number: int | None) -> None:
    name = TopicName.parse(topic)
    assert (str(name.partition_of) if name.partition_of else None) == base
    assert name.partition_number == number


@pytest.mark.parametrize("text", ["", "x" * 256, "a\nb", "\x00"])
def test_names_of_clients_are_printable_and_bounded(text: str) -> None:
    with pytest.raises(Rejected, match="invalid consumer name"):
        check_name(text, what="consumer name")
