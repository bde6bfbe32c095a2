"""docs/reference/configuration.md: every key of a broker's file, from the structs that check it."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from pydanube.server.config import Settings
from pydanube.server.config_file import ENVIRONMENT_PREFIX
from pydanube.server.refused_keys import MOVED, REFUSED

INTRODUCTION = """\
The keys of the YAML file that `danube broker --config-file` takes, with what a broker does without it.
[deploy/danube.yml](../../deploy/danube.yml) is such a file with every default written out. `danube config check FILE` says
everything that is wrong with one, `danube config show` what a broker would run with.

Each key can be set by an environment variable too, which wins over the file: `broker.ports.client` is
`DANUBE_BROKER__PORTS__CLIENT`. Lists are separated by commas or written as YAML. Options of `danube broker` win over both.
A key that is unknown, or that this release cannot honour, is refused: no key is ever ignored.
"""


@dataclass(frozen=True)
class Key:
    path: str
    kind: str
    default: str
    meaning: str


def page() -> str:
    lines = ["# Configuration", "", INTRODUCTION]
    for section, about, keys in sections(Settings, "", "The file"):
        title = f"`{section}`" if section else "Top level"
        lines += [f"## {title}", ""]
        lines += [about, ""] if about and section else []
        lines += ["| key | values | default | meaning |", "|---|---|---|---|"]
        lines += [
            f"| `{key.path}` | {_cell(key.kind)} | {_cell(key.default)} | {_cell(key.meaning)} |"
            for key in keys
        ]
        lines.append("")
    lines += _others()
    return "\n".join(lines)


def sections(struct: type[msgspec.Struct], prefix: str, about: str) -> Iterator[tuple[str, str, list[Key]]]:
    """Each block of the file with its plain keys, blocks within it behind it."""
    meanings = _field_meanings(struct)
    keys: list[Key] = []
    below: list[tuple[type[msgspec.Struct], str, str]] = []
    for field in msgspec.structs.fields(struct):
        path = prefix + field.name
        inner = _struct_in(field.type)
        meaning = meanings.get(field.name, "")
        if inner is None:
            keys.append(Key(path, kind_text(field.type), _default_text(field), meaning))
            continue
        optional = NoneType in get_args(field.type)
        if optional:
            keys.append(Key(path, "a block, or null", _default_text(field), meaning))
        about_both = " ".join(dict.fromkeys(text for text in (meaning, _about(inner)) if text))
        below.append((inner, path + _item_suffix(field.type), about_both))
    if keys:
        yield prefix.rstrip("."), about, keys
    for inner, path, told in below:
        yield from sections(inner, path + ".", told)


def kind_text(kind: Any, bounds: str = "") -> str:
    """What a key takes, in words."""
    origin = get_origin(kind)
    if origin is Annotated:
        plain, *rest = get_args(kind)
        return kind_text(plain, " ".join(_bounds(meta) for meta in rest if isinstance(meta, msgspec.Meta)))
    if origin in (Union, UnionType):
        parts = [kind_text(part, bounds) for part in get_args(kind) if part is not NoneType]
        return " or ".join(parts) + (", or null" if NoneType in get_args(kind) else "")
    if origin is Literal:
        return " \\| ".join(f"`{word}`" for word in get_args(kind))
    if origin is tuple:
        return f"list of {kind_text(get_args(kind)[0])}"
    if origin is dict:
        return f"names to {kind_text(get_args(kind)[1])}"
    if isinstance(kind, type) and issubclass(kind, Enum):
        return " \\| ".join(f"`{member.value}`" for member in kind)
    words = {bool: "true or false", int: "number", float: "number", str: "text"}
    word = words.get(kind, "block")
    return f"{word} {bounds}".strip() if word == "number" else word


def _bounds(meta: msgspec.Meta) -> str:
    if meta.ge is not None and meta.le is not None:
        return f"{meta.ge:,} to {meta.le:,}"
    if meta.ge is not None:
        return f"from {meta.ge:,}"
    return "" if meta.le is None else f"up to {meta.le:,}"


def _default_text(field: msgspec.structs.FieldInfo) -> str:
    if field.default is msgspec.NODEFAULT and field.default_factory is msgspec.NODEFAULT:
        return "required"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, Enum):
        return f"`{value.value}`"
    if isinstance(value, tuple | list | dict) and not value:
        return "none"
    return f"`{value}`"


def _struct_in(kind: Any) -> type[msgspec.Struct] | None:
    """The block a key holds: itself, as items of a list, or by name."""
    if get_origin(kind) in (Annotated, tuple, list):
        return _struct_in(get_args(kind)[0])
    if get_origin(kind) is dict:
        return _struct_in(get_args(kind)[1])
    if get_origin(kind) in (Union, UnionType):
        return next((found for part in get_args(kind) if (found := _struct_in(part))), None)
    return kind if isinstance(kind, type) and issubclass(kind, msgspec.Struct) else None


def _item_suffix(kind: Any) -> str:
    """How a path goes on into a list or a mapping of blocks."""
    if get_origin(kind) is Annotated:
        return _item_suffix(get_args(kind)[0])
    return {tuple: "[]", dict: ".NAME"}.get(get_origin(kind), "")


def _about(struct: type[msgspec.Struct]) -> str:
    return " ".join((struct.__dict__.get("__doc__") or "").split())


def _field_meanings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """The sentence below each field, of the class and those it inherits from."""
    found: dict[str, str] = {}
    for base in reversed(struct.__mro__):
        if base.__module__.startswith("pydanube."):
            found |= _meanings_in(base)
    return found


def _meanings_in(struct: type) -> dict[str, str]:
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(struct))).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for node, following in zip(definition.body, definition.body[1:], strict=False):
        if (
            isinstance(node, ast.AnnAssign)
            and isinstance(node.target, ast.Name)
            and isinstance(following, ast.Expr)
            and isinstance(following.value, ast.Constant)
        ):
            found[node.target.id] = " ".join(str(following.value.value).split())
    return found


def _others() -> list[str]:
    lines = ["## Other names", "", "Keys of a Danube broker's file that are taken under another name.", ""]
    lines += ["| key | is |", "|---|---|"]
    lines += [f"| `{old}` | `{new}` |" for old, new in sorted(MOVED.items())]
    lines += ["", "## Refused", "", "Keys of a Danube broker's file that this release cannot honour.", ""]
    lines += ["| key | what to do |", "|---|---|"]
    lines += [f"| `{key}` | {_cell(reason)} |" for key, (_, reason) in sorted(REFUSED.items())]
    variable = f"{ENVIRONMENT_PREFIX}LOG"
    lines += ["", "## Environment", "", "| variable | meaning |", "|---|---|"]
    lines += [f"| `{variable}` | Level of the log: debug, info, warning or error |", ""]
    return lines


def _cell(text: str) -> str:
    """A bar within a cell must not end it."""
    return re.sub(r"(?<!\\)\|", r"\\|", text) or "-"
