"""What every format does for a table: columns from one schema, rows from payloads of any version of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type

from pydanube.kernel.errors import ErrorCode, Rejected
from pydanube.schemas.format import ParsedSchema
from pydanube.spark.columns import MESSAGE_SCHEMA

Row: TypeAlias = Sequence[object]
"""A value for each typed column, as Arrow takes them."""

DecodeRow: TypeAlias = Callable[[bytes], Row]
"""Raises `BadPayload`, and nothing else, for bytes that make no row."""

VALUE_COLUMN: Final = "value"
"""The one column of a schema that is no record."""

ERROR_COLUMN: Final = "_decode_error"

JSON_TEXT: Final = pa.string()
"""What has no type of its own in a table is kept as JSON."""

COLUMNS_MAX: Final = 5_000
"""Nested ones counted; a schema of a few lines can unfold to any number."""

_TAKEN: Final = frozenset(MESSAGE_SCHEMA.names) | {ERROR_COLUMN}


class BadPayload(Exception):
    """The bytes make no row; `where` collects the path from the inside out. The text never repeats the payload."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.where: list[str] = []

    def explained(self) -> str:
        path = "".join(reversed(self.where)).removeprefix(".")
        return f"'{path}': {self.text}" if path else self.text


class TableFormat(Protocol):
    """The schema a table has, and how payloads of its versions become rows of it."""

    @property
    def columns(self) -> pa.Schema: ...

    def decoder(self, written: ParsedSchema, *, is_exact: bool = False) -> DecodeRow:
        """For payloads of one version, which may be the table's own.

        Unless it must be exact, values Arrow surely takes or refuses may be left to Arrow.
        """


class Budget:
    """Counts columns while a table is laid out."""

    def __init__(self) -> None:
        self._left = COLUMNS_MAX

    def spend(self) -> None:
        self._left -= 1
        if self._left < 0:
            raise Rejected(
                f"the schema has more than {COLUMNS_MAX} columns, nested ones counted: decode a part of it, or split it",
                ErrorCode.SCHEMA_INVALID,
            )


def column_names(fields: Iterable[str], *, at_top: bool = False) -> list[str]:
    """Names for the columns of these fields, in order.

    Spark does not tell `id` from `ID`, and a row has the columns of its message beside its own: whoever comes later
    gets underscores behind the name.
    """
    taken = set(_TAKEN) if at_top else set()
    names = []
    for field in fields:
        name = field
        while name.lower() in taken:
            name += "_"
        taken.add(name.lower())
        names.append(name)
    return names


def misfit(type: pa.DataType) -> BadPayload:  # noqa: A002
    """For a value that is right by its own version and not for the table."""
    return BadPayload(f"the value does not fit a column of type {spelled(type)}")


def spelled(type: pa.DataType) -> str:  # noqa: A002
    """A type in Spark's words."""
    return from_arrow_type(type, prefer_timestamp_ntz=True).simpleString()
