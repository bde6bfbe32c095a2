"""JSON text of unknown origin as bounded Python values, and the fingerprint of such a document."""

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

from pydanube.schemas.limits import NESTING_MAX, NODES_MAX, refuse

# JSON has no closed type in Python: what is read here is examined key by key before it is used.
Json: TypeAlias = Any


def read_document(definition: bytes, *, name: str = "the definition") -> Json:
    """The value of a JSON text; refuses what is not JSON, too deep, too large or ambiguous."""
    try:
        document = json.loads(
            definition.decode(),
            object_pairs_hook=_unique_keys,
            parse_constant=_no_constant,
            parse_int=_integer,
            parse_float=_finite,
        )
    except UnicodeDecodeError as error:
        raise refuse(f"{name} is not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise refuse(
            f"{name} is not JSON: {error.msg} at line {error.lineno} column {error.colno}"
        ) from error
    except RecursionError as error:
        raise refuse(f"{name} is nested more than {NESTING_MAX} deep") from error
    _check_shape(document, name)
    try:
        _canonical(document)
    except UnicodeEncodeError as error:
        raise refuse(f"{name} holds half of a surrogate pair, which is no text") from error
    return document


def fingerprint_of(document: Json, references: Mapping[str, Json]) -> str:
    """Equal for documents that differ in whitespace and order of keys only; references count as content."""
    content = [document, references] if references else document
    return "sha256:" + hashlib.sha256(_canonical(content)).hexdigest()


def same_json(one: Json, other: Json) -> bool:
    """Equality as JSON Schema has it: 1 is 1.0, but true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same_json(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same_json, one, other))
    return bool(one == other)


def _canonical(content: Json) -> bytes:
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _unique_keys(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    # Two parsers may choose differently between two values of one key: such a text has no one meaning.
    found = dict(pairs)
    if len(found) != len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise refuse(f"the definition has the key {twice[:64]!r} twice in one object")
    return found


def _no_constant(text: str) -> Json:
    raise refuse(f"the definition holds {text}, which is not JSON")


def _integer(text: str) -> int:
    # Longer ones cost quadratic time to read, and no format gives them a meaning.
    if len(text) > 100:
        raise refuse(f"the definition holds an integer of {len(text)} digits")
    return int(text)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise refuse(f"the definition holds {text[:64]}, which is too large for a number")
    return number


def _check_shape(document: Json, name: str) -> None:
    nodes = 0
    level: list[Json] = [document]
    depth = 0
    while level:
        depth += 1
        nodes += len(level)
        if depth > NESTING_MAX:
            raise refuse(f"{name} is nested more than {NESTING_MAX} deep")
        if nodes > NODES_MAX:
            raise refuse(f"{name} has more than {NODES_MAX} values: split it into several schemas")
        below: list[Json] = []
        for value in level:
            if isinstance(value, dict):
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        level = below
