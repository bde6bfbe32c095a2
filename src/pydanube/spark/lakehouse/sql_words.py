"""Names, values and changes of columns as Spark's SQL spells them."""

from collections.abc import Mapping

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from pydanube.spark.lakehouse.evolution import AddColumn, Change, RenameColumn, WidenColumn


def quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"


def text(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def type_text(kind: DataType) -> str:
    """As `simpleString` has it, with the names of nested fields quoted."""
    match kind:
        case StructType():
            fields = (f"{quoted(field.name)}: {type_text(field.dataType)}" for field in kind)
            return f"struct<{', '.join(fields)}>"
        case ArrayType():
            return f"array<{type_text(kind.elementType)}>"
        case MapType():
            return f"map<{type_text(kind.keyType)}, {type_text(kind.valueType)}>"
        case _:
            return kind.simpleString()


def column_list(schema: StructType) -> str:
    return ", ".join(f"{quoted(field.name)} {type_text(field.dataType)}" for field in schema)


def property_list(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())


def alteration(table: str, change: Change) -> str:
    """The statement that changes a column."""
    path = ".".join(quoted(name) for name in change.path)
    match change:
        case AddColumn(type=kind):
            return f"ALTER TABLE {table} ADD COLUMNS ({path} {type_text(kind)})"
        case WidenColumn(type=kind):
            return f"ALTER TABLE {table} ALTER COLUMN {path} TYPE {type_text(kind)}"
        case RenameColumn(name=name):
            return f"ALTER TABLE {table} RENAME COLUMN {path} TO {quoted(name)}"
