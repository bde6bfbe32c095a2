"""Whether a JSON value is a value of an Avro type, as defaults of fields are written."""

from collections.abc import Iterable

from pydanube.schemas.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enumeration,
    Fixed,
    Map,
    Primitive,
    Record,
    Union,
    label,
)
from pydanube.schemas.documents import Json
from pydanube.schemas.limits import COMPARISONS_MAX, refuse

INT_MAX = 2**31
LONG_MAX = 2**63


class DefaultCheck:
    """Judges all defaults of one schema; remembers verdicts, since unions of records multiply the ways."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[int, int], str | None] = {}

    def problem(self, node: AvroType, value: Json) -> str | None:
        """Why the value is none of the type, or None if it is; as deep as the value at most."""
        key = (id(node), id(value))
        if key not in self._verdicts:
            if len(self._verdicts) >= COMPARISONS_MAX:
                raise refuse("the defaults take too long to check: use smaller defaults or unions")
            self._verdicts[key] = self._judge(node, value)
        return self._verdicts[key]

    def _judge(self, node: AvroType, value: Json) -> str | None:
        match node:
            case Primitive():
                return None if _fits_primitive(node.name, value) else _not(value, node)
            case Fixed():
                return None if _is_bytes(value) and len(value) == node.size else _not(value, node)
            case Enumeration():
                return None if isinstance(value, str) and value in node.symbols else _not(value, node)
            case Array():
                return self._first(node.items, value) if isinstance(value, list) else _not(value, node)
            case Map():
                return (
                    self._first(node.values, value.values()) if isinstance(value, dict) else _not(value, node)
                )
            case Union():
                # Older specifications want the first branch; readers of today take whichever fits.
                if any(self.problem(branch, value) is None for branch in node.branches):
                    return None
                return f"{_short(value)} fits no branch of the union"
            case Record():
                return self._record(node, value)

    def _first(self, node: AvroType, values: Iterable[Json]) -> str | None:
        return next(filter(None, (self.problem(node, value) for value in values)), None)

    def _record(self, node: Record, value: Json) -> str | None:
        if not isinstance(value, dict):
            return _not(value, node)
        for field in node.fields:
            if field.name in value:
                problem = self.problem(field.type, value[field.name])
                if problem:
                    return problem
            elif field.default is NO_DEFAULT:
                return f"the field {field.name!r} of {label(node)} is missing"
        return None


def _fits_primitive(name: str, value: Json) -> bool:
    match name:
        case "null":
            return value is None
        case "boolean":
            return isinstance(value, bool)
        case "int":
            return type(value) is int and -INT_MAX <= value < INT_MAX
        case "long":
            return type(value) is int and -LONG_MAX <= value < LONG_MAX
        case "float" | "double":
            return type(value) in (int, float)
        case "bytes":
            return _is_bytes(value)
        case _:
            return isinstance(value, str)


def _is_bytes(value: Json) -> bool:
    """Bytes are written as text whose code points are the bytes."""
    return isinstance(value, str) and all(ord(character) < 256 for character in value)


def _not(value: Json, node: AvroType) -> str:
    return f"{_short(value)} is no {label(node)}"


def _short(value: Json) -> str:
    text = repr(value)
    return text if len(text) <= 64 else text[:61] + "..."
