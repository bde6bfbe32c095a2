"""Which names of a statement are topics."""

import pytest

from pydanube.kernel.errors import Rejected
from pydanube.spark.sql import TOPICS_MAX, topics_in


@pytest.mark.parametrize(
    ("statement", "topics"),
    [
        ("SELECT * FROM `/default/orders`", ["/default/orders"]),
        ("SELECT `/default/a`.offset FROM `/default/a` JOIN `/default/b` USING (offset)", ["/default/a", "/default/b"]),
        ("WITH x AS (SELECT * FROM `/default/a`) SELECT * FROM x, `/other/b-part-0`", ["/default/a", "/other/b-part-0"]),
        ("SELECT `offset`, `a``b` FROM t", []),
        ("SELECT '`/default/a`', \"`/default/b`\", 'it\\'s `/default/c`' FROM `/default/d`", ["/default/d"]),
        ("SELECT 'it''s', '`/default/c`' FROM `/default/d`", ["/default/d"]),
        ("SELECT 1 -- FROM `/default/a`\nFROM `/default/b`", ["/default/b"]),
        ("SELECT /* `/default/a` /* `/default/b` */ `/default/c` */ 1 FROM `/default/d`", ["/default/d"]),
        ("SELECT 1 /* FROM `/default/a`", []),
        ("SELECT 6 / 2 - -1 FROM `/default/a`", ["/default/a"]),
        ("SELECT offset AS `/a/b` FROM `/default/a` as `/x/y`", ["/default/a"]),
        ("SELECT * FROM parquet.`/some/where`, delta . `/some/table`", []),
        ("", []),
    ],
)  # fmt: skip
def test_a_name_between_backquotes_that_begins_with_a_slash_is_a_topic(
    statement: str, topics: list[str]
) -> None:
    assert topics_in(statement) == topics


@pytest.mark.parametrize("name", ["/orders", "/default/or ders", "/default/a/b", "/"])
def test_a_name_that_no_topic_can_have_is_refused(name: str) -> None:
    with pytest.raises(Rejected, match="topic name"):
        topics_in(f"SELECT * FROM `{name}`")


def test_a_statement_names_a_bounded_number_of_topics() -> None:
    with pytest.raises(Rejected, match=f"names {TOPICS_MAX + 1} topics"):
        topics_in(" ".join(f"`/default/t{number}`" for number in range(TOPICS_MAX + 1)))
