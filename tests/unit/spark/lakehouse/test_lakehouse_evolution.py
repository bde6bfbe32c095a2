"""How columns follow a schema."""

import pytest
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
)

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.spark.lakehouse.delta_layout import partitioning
from pydanube.spark.lakehouse.evolution import plan_evolution
from pydanube.spark.lakehouse.sql_words import alteration, column_list, text

INT, LONG, FLOAT, DOUBLE, STRING = IntegerType(), LongType(), FloatType(), DoubleType(), StringType()


def struct(**fields: DataType) -> StructType:
    made = StructType()
    for name, kind in fields.items():
        made.add(name, kind)
    return made


def statements(table: StructType, wanted: StructType, renames: dict[str, str] | None = None) -> list[str]:
    return [alteration("t", change) for change in plan_evolution(table, wanted, renames).changes]


def test_columns_are_added_and_widened_at_any_depth_by_name() -> None:
    table = struct(b=INT, a=STRING, s=struct(x=INT), l=ArrayType(struct(y=FLOAT)), m=MapType(STRING, INT))
    wanted = struct(
        a=STRING,
        b=LONG,
        c=DOUBLE,
        s=struct(z=STRING, x=LONG),
        l=ArrayType(struct(y=DOUBLE, w=INT)),
        m=MapType(STRING, LONG),
    )
    assert statements(table, wanted) == [
        "ALTER TABLE t ALTER COLUMN `b` TYPE bigint",
        "ALTER TABLE t ADD COLUMNS (`c` double)",
        "ALTER TABLE t ADD COLUMNS (`s`.`z` string)",
        "ALTER TABLE t ALTER COLUMN `s`.`x` TYPE bigint",
        "ALTER TABLE t ALTER COLUMN `l`.`element`.`y` TYPE double",
        "ALTER TABLE t ADD COLUMNS (`l`.`element`.`w` int)",
        "ALTER TABLE t ALTER COLUMN `m`.`value` TYPE bigint",
    ]


@pytest.mark.parametrize(
    ("has", "wanted"),
    [(LONG, INT), (DOUBLE, FLOAT), (DOUBLE, INT), (DecimalType(10, 2), DecimalType(8, 2)), (INT, INT)],
)
def test_a_wider_column_stays(has: DataType, wanted: DataType) -> None:
    assert statements(struct(a=has), struct(A=wanted)) == []


def test_columns_the_schema_no_longer_has_stay() -> None:
    assert statements(struct(a=INT, gone=STRING), struct(a=INT)) == []


@pytest.mark.parametrize(
    ("has", "wanted"),
    [
        (INT, STRING),
        (LONG, DOUBLE),
        (DecimalType(10, 2), DecimalType(12, 3)),
        (struct(x=INT), STRING),
        (ArrayType(INT), ArrayType(STRING)),
        (MapType(INT, INT), MapType(LONG, INT)),
    ],
)
def test_what_cannot_be_widened_stops_or_gets_a_column_of_its_own(has: DataType, wanted: DataType) -> None:
    table = struct(a=has)
    with pytest.raises(Rejected, match=r"column a.* of the table is .*--on-incompatible new-column") as no:
        plan_evolution(table, struct(a=wanted))
    assert no.value.code is ErrorCode.SCHEMA_INCOMPATIBLE
    beside = f"a_{wanted.typeName()}"
    plan = plan_evolution(table, struct(a=wanted), on_incompatible="new-column")
    assert dict(plan.columns) == {"a": beside}
    assert [change.path for change in plan.changes] == [(beside,)]
    # The next time it is there.
    again = plan_evolution(table.add(beside, wanted), struct(a=wanted), on_incompatible="new-column")
    assert (again.changes, dict(again.columns)) == ((), {"a": beside})


def test_a_renamed_column_keeps_its_rows_and_can_be_widened_too() -> None:
    table, wanted = struct(amount=INT), struct(total=LONG)
    assert statements(table, wanted, {"amount": "total"}) == [
        "ALTER TABLE t RENAME COLUMN `amount` TO `total`",
        "ALTER TABLE t ALTER COLUMN `total` TYPE bigint",
    ]
    # Done before, or the new name is taken: nothing is renamed.
    assert statements(struct(total=LONG), wanted, {"amount": "total"}) == []
    assert statements(struct(total=LONG, amount=INT), wanted, {"amount": "total"}) == []
    cannot = plan_evolution(table, wanted, {"amount": "total"}, can_rename=False)
    assert [alteration("t", change) for change in cannot.changes] == [
        "ALTER TABLE t ADD COLUMNS (`total` bigint)"
    ]


def test_names_that_differ_in_case_only_are_refused() -> None:
    with pytest.raises(Rejected, match="want the column id"):
        plan_evolution(struct(id=INT), StructType().add("id", INT).add("ID", INT))


def test_names_are_quoted() -> None:
    assert column_list(StructType().add("a`b", struct(**{"c.d": INT}))) == "`a``b` struct<`c.d`: int>"
    assert text("it's \\ so") == "'it\\'s \\\\ so'"


def test_delta_makes_columns_for_days() -> None:
    schema = struct(_append_time=TimestampType(), region=STRING)
    made, names = partitioning(schema, ["days(_append_time)", "region"])
    assert made == ["`_append_day` DATE GENERATED ALWAYS AS (CAST(`_append_time` AS DATE))"]
    assert names == ["_append_day", "region"]
    for wrong in ("days(_apend_time)", "bucket(region)", "weeks(_append_time)", "nowhere"):
        with pytest.raises(Rejected, match="invalid partitioning"):
            partitioning(schema, [wrong])
