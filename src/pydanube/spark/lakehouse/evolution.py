"""From the columns a table has to those a schema wants, by name: what must be added, widened or renamed.

Everything here can be done twice: a sync that died in the middle looks again and does the rest.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StructField,
    StructType,
)

from pydanube.kernel.errors import ErrorCode, Rejected

OnIncompatible = Literal["stop", "new-column"]
Path = tuple[str, ...]

_ORDER = (ByteType, ShortType, IntegerType, LongType)


@dataclass(frozen=True, slots=True)
class AddColumn:
    path: Path
    type: DataType


@dataclass(frozen=True, slots=True)
class WidenColumn:
    path: Path
    type: DataType


@dataclass(frozen=True, slots=True)
class RenameColumn:
    path: Path
    name: str


Change = AddColumn | WidenColumn | RenameColumn


@dataclass(frozen=True, slots=True)
class Plan:
    """How a table takes rows of a schema."""

    changes: tuple[Change, ...]
    columns: Mapping[str, str]
    """Which column of the table each wanted one goes into."""


class _Incompatible(Exception):
    def __init__(self, path: Path, has: DataType, wanted: DataType) -> None:
        super().__init__(path)
        self.path, self.has, self.wanted = path, has, wanted


def plan_evolution(
    table: StructType,
    wanted: StructType,
    renames: Mapping[str, str] | None = None,
    *,
    on_incompatible: OnIncompatible = "stop",
    can_rename: bool = True,
) -> Plan:
    """What to change so that the table has a place for each wanted column.

    Args:
        renames: new names by old ones.
        on_incompatible: what becomes of a column whose type cannot be widened: an error, or a new column beside it.
        can_rename: whether the format can; if not, a renamed column is a new one.

    Raises:
        Rejected: SCHEMA_INCOMPATIBLE, naming the column, both types and the way out.
    """
    columns = {field.name.lower(): field for field in table}
    changes: list[Change] = []
    places: dict[str, str] = {}
    for old, new in (renames or {}).items() if can_rename else ():
        if old.lower() in columns and new.lower() not in columns:
            field = columns.pop(old.lower())
            changes.append(RenameColumn((field.name,), new))
            columns[new.lower()] = StructField(new, field.dataType)
    for field in wanted:
        name = field.name
        try:
            place, found = _place(columns, field)
        except _Incompatible as error:
            if on_incompatible == "stop":
                raise _refusal(error) from error
            beside = f"{name}_{field.dataType.typeName()}"
            try:
                place, found = _place(columns, StructField(beside, field.dataType))
            except _Incompatible as again:
                raise _refusal(again) from again
        if place.lower() in {taken.lower() for taken in places.values()}:
            raise Rejected(
                f"two fields of the schema want the column {place}: names that differ in case only are one name in "
                "a table; rename one of them",
                ErrorCode.SCHEMA_INCOMPATIBLE,
            )
        changes += found
        places[name] = place
    return Plan(tuple(changes), places)


def fit(column: Column, has: DataType, wanted: DataType) -> Column:
    """A column in the type of the table, nested fields by name."""
    if has == wanted:
        return column
    if isinstance(has, StructType) and isinstance(wanted, StructType):
        given = {field.name.lower(): field for field in has}
        fields = [
            (
                fit(
                    column[given[field.name.lower()].name], given[field.name.lower()].dataType, field.dataType
                )
                if field.name.lower() in given
                else fn.lit(None).cast(field.dataType)
            ).alias(field.name)
            for field in wanted
        ]
        return fn.when(column.isNotNull(), fn.struct(*fields))
    if isinstance(has, ArrayType) and isinstance(wanted, ArrayType):
        inner, outer = has.elementType, wanted.elementType
        return fn.transform(column, lambda element: fit(element, inner, outer))
    if isinstance(has, MapType) and isinstance(wanted, MapType):
        value, target = has.valueType, wanted.valueType
        return fn.transform_values(column, lambda _, each: fit(each, value, target))
    return column.cast(wanted)


def _place(columns: Mapping[str, StructField], field: StructField) -> tuple[str, list[Change]]:
    there = columns.get(field.name.lower())
    if there is None:
        return field.name, [AddColumn((field.name,), field.dataType)]
    return there.name, list(_changes((there.name,), there.dataType, field.dataType))


def _changes(path: Path, has: DataType, wanted: DataType) -> Iterator[Change]:
    if isinstance(has, StructType) and isinstance(wanted, StructType):
        fields = {field.name.lower(): field for field in has}
        for field in wanted:
            there = fields.get(field.name.lower())
            if there is None:
                yield AddColumn((*path, field.name), field.dataType)
            else:
                yield from _changes((*path, there.name), there.dataType, field.dataType)
    elif isinstance(has, ArrayType) and isinstance(wanted, ArrayType):
        yield from _changes((*path, "element"), has.elementType, wanted.elementType)
    elif isinstance(has, MapType) and isinstance(wanted, MapType):
        if _widened(has.keyType, wanted.keyType) != has.keyType:
            raise _Incompatible((*path, "key"), has.keyType, wanted.keyType)
        yield from _changes((*path, "value"), has.valueType, wanted.valueType)
    else:
        holds_both = _widened(has, wanted)
        if holds_both is None:
            raise _Incompatible(path, has, wanted)
        if holds_both != has:
            yield WidenColumn(path, holds_both)


def _widened(has: DataType, wanted: DataType) -> DataType | None:
    """The type that has room for both, as far as table formats can widen to it."""
    if has == wanted:
        return has
    if isinstance(has, _ORDER) and isinstance(wanted, _ORDER):
        return max(has, wanted, key=lambda kind: _ORDER.index(type(kind)))
    if isinstance(has, FloatType | DoubleType) and isinstance(wanted, FloatType | DoubleType):
        return DoubleType()
    if isinstance(has, DoubleType) and isinstance(wanted, ByteType | ShortType | IntegerType):
        return has
    if isinstance(has, DecimalType) and isinstance(wanted, DecimalType) and has.scale == wanted.scale:
        return has if has.precision >= wanted.precision else wanted
    return None


def _refusal(error: _Incompatible) -> Rejected:
    return Rejected(
        f"column {'.'.join(error.path)} of the table is {error.has.simpleString()}, the schema now says "
        f"{error.wanted.simpleString()}, and no table can be widened so: register a schema that keeps the type, sync "
        "into another table, or use --on-incompatible new-column",
        ErrorCode.SCHEMA_INCOMPATIBLE,
    )
