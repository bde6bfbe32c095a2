"""YAML into structs, with every problem named by its line, and the nearest known key for each unknown one."""

import difflib
import types
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, Union, get_args, get_origin

import msgspec
import yaml

from pydanube.kernel.errors import Rejected

TEXT_BYTES_MAX: Final = 1 << 20
DEPTH_MAX: Final = 30

Document = TypeVar("Document", bound=msgspec.Struct)
Path = tuple[str | int, ...]


class _Loader(yaml.SafeLoader):
    """With the booleans of YAML 1.2: `on`, `off`, `yes` and `no` are words, and `on` is a key of ours."""


_Loader.yaml_implicit_resolvers = {
    first: [each for each in resolvers if each[0] != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """What is wrong, and where."""

    line: int
    """0: it comes from no file."""
    path: str
    text: str
    is_warning: bool = False

    def __str__(self) -> str:
        where = f"line {self.line}" if self.line else ""
        kind = "warning" if self.is_warning else ""
        return ": ".join(part for part in (where, self.path, kind, self.text) if part)


class Invalid(Rejected):
    """Everything wrong with a document."""

    def __init__(self, name: str, problems: Iterable[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        lines = "\n".join(f"  {problem}" for problem in self.problems)
        super().__init__(f"{name} cannot be used:\n{lines}")


@dataclass(slots=True)
class Lines:
    """The line of each key and item of a document."""

    name: str
    known: dict[Path, int] = field(default_factory=dict)
    unknown: list[Path] = field(default_factory=list)
    """Keys that mean nothing."""

    def problem(self, path: Path, text: str) -> Problem:
        """A problem with what is at the path, or with what should be there."""
        place = path
        while place and place not in self.known:
            place = place[:-1]
        return Problem(self.known.get(place, 1 if self.known else 0), shown(path), text)

    def warning(self, path: Path, text: str) -> Problem:
        """What is allowed and looks wrong."""
        problem = self.problem(path, text)
        return Problem(problem.line, problem.path, text, is_warning=True)


def shown(path: Path) -> str:
    """A path as people write it: steps[2].window.size."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text


def load(text: str, kind: type[Document], name: str) -> tuple[Document, Lines, list[Problem]]:
    """A document of this kind, without the keys it does not know, and a problem for each of those.

    Raises:
        Invalid: it is none; all that is wrong is told at once.
    """
    lines = Lines(name)
    if len(text.encode()) > TEXT_BYTES_MAX:
        raise Invalid(name, [Problem(1, "", f"it has more than {TEXT_BYTES_MAX} bytes")])
    try:
        loader = _Loader(text)
        try:
            node = loader.get_single_node()
            problems = list(_note(lines, node, ()))
            if problems:
                raise Invalid(name, problems)
            data = None if node is None else loader.construct_document(node)
        finally:
            loader.dispose()
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise Invalid(name, [Problem(line, "", f"this is not YAML: {error.problem}")]) from error
    except yaml.YAMLError as error:
        raise Invalid(name, [Problem(1, "", f"this is not YAML: {error}")]) from error
    problems = list(_check(lines, data, kind, ()))
    if len(problems) > len(lines.unknown):
        raise Invalid(name, problems)
    for path in lines.unknown:
        _remove(data, path)
    return msgspec.convert(data, kind), lines, problems


def _note(lines: Lines, node: yaml.Node | None, path: Path) -> Iterable[Problem]:
    """Remember where everything is; a key given twice is a problem, for YAML would keep the last one."""
    if len(path) > DEPTH_MAX:
        yield lines.problem(path, f"nested deeper than {DEPTH_MAX} levels")
    elif isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            below = (*path, str(key.value))
            if below in lines.known:
                yield Problem(
                    key.start_mark.line + 1, shown(below), f"given before, in line {lines.known[below]}"
                )
            lines.known[below] = key.start_mark.line + 1
            yield from _note(lines, value, below)
    elif isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            lines.known[*path, number] = item.start_mark.line + 1
            yield from _note(lines, item, (*path, number))


def _check(lines: Lines, value: Any, kind: Any, path: Path) -> Iterable[Problem]:
    """What is wrong with a value, all the way down."""
    choices = [each for each in _choices(kind) if each is not type(None)]
    if value is None and len(choices) < len(_choices(kind)):
        return
    structs = [each for each in choices if isinstance(each, type) and issubclass(each, msgspec.Struct)]
    if structs and isinstance(value, dict):
        yield from _check_struct(lines, value, structs[0], path)
        return
    lists = [each for each in choices if get_origin(each) in (list, tuple)]
    if lists and isinstance(value, list):
        for number, item in enumerate(value):
            yield from _check(lines, item, get_args(lists[0])[0], (*path, number))
        return
    maps = [each for each in choices if get_origin(each) is dict]
    if maps and isinstance(value, dict):
        for key, item in value.items():
            yield from _check(lines, item, get_args(maps[0])[1], (*path, str(key)))
        return
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        yield lines.problem(path, _plainly(str(error)))


def _check_struct(
    lines: Lines, value: dict[Any, Any], kind: type[msgspec.Struct], path: Path
) -> Iterable[Problem]:
    known = {each.encode_name: each for each in msgspec.structs.fields(kind)}
    for key, item in value.items():
        if key in known:
            yield from _check(lines, item, known[key].type, (*path, str(key)))
        else:
            lines.unknown.append((*path, key))
            yield lines.problem((*path, str(key)), unknown("key", str(key), known))
    for name, each in known.items():
        if each.required and name not in value:
            yield lines.problem(path, f"the key {name!r} is missing")


def _remove(data: Any, path: Path) -> None:
    *way, last = path
    for part in way:
        data = data[part]
    del data[last]


def unknown(what: str, given: str, known: Iterable[str]) -> str:
    """The text for a name that means nothing, with the one that was probably meant."""
    names = list(known)
    near = difflib.get_close_matches(given, names, n=1, cutoff=0.6)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(names))}"
    return f"unknown {what} {given!r}: {hint}"


def _choices(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, types.UnionType) else (kind,)


def _plainly(text: str) -> str:
    return text.partition(" - at ")[0].replace("`", "'").replace("'object'", "keys and values")
