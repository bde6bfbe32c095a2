"""Avro schema resolution, decided before any data exists: can this reader read all that writer may write?

The rules are those of the specification's chapter on schema resolution; docs/schemas.md lists them. The
comparison walks both graphs at once. A pair met again is not compared again: it is either still being
compared (a recursive type) or already reported.
"""

from collections import deque

from pydanube.schemas.avro_types import (
    NO_DEFAULT,
    Array,
    AvroType,
    Enumeration,
    Field,
    Fixed,
    Map,
    Named,
    Primitive,
    Record,
    Union,
    label,
)
from pydanube.schemas.format import Incompatibility
from pydanube.schemas.limits import COMPARISONS_MAX, PROBLEMS_MAX

# What a written type may be read as besides itself.
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}


def problems_between(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    """Why some data of `writer` cannot be read with `reader`, in the order of the reader's fields."""
    comparison = _Comparison()
    comparison.compare(reader, writer, "")
    comparison.finish()
    return comparison.problems[:PROBLEMS_MAX]


class _Comparison:
    def __init__(self) -> None:
        self.problems: list[Incompatibility] = []
        self._met: set[tuple[int, int]] = set()
        self._branches: dict[int, _Branches] = {}
        self._pending: deque[tuple[AvroType, AvroType, str]] = deque()

    def compare(self, reader: AvroType, writer: AvroType, path: str) -> None:
        """Have a pair compared that was not met before."""
        pair = (id(reader), id(writer))
        if pair not in self._met:
            self._met.add(pair)
            self._pending.append((reader, writer, path))

    def finish(self) -> None:
        """Compare all that is pending; a list of work, since types may refer to each other in long chains."""
        while self._pending and len(self.problems) < PROBLEMS_MAX:
            if len(self._met) > COMPARISONS_MAX:
                self._note("", "cannot_be_shown", "the schemas are too large to be compared: split them")
                return
            self._compare(*self._pending.popleft())

    def _compare(self, reader: AvroType, writer: AvroType, path: str) -> None:
        if isinstance(writer, Union):
            for branch in writer.branches:
                self.compare(
                    reader, branch, path if isinstance(reader, Union) else f"{path}|{_short(branch)}"
                )
        elif isinstance(reader, Union):
            self._compare_union(reader, writer, path)
        elif not _same_shape(reader, writer):
            self._note_other_type(reader, writer, path)
        else:
            self._compare_same_shape(reader, writer, path)

    def _compare_union(self, reader: Union, writer: AvroType, path: str) -> None:
        branches = self._branches.get(id(reader))
        if branches is None:
            branches = self._branches[id(reader)] = _Branches(reader)
        branch = branches.branch_for(writer)
        if branch is None:
            known = _listed([label(branch) for branch in reader.branches]) or "nothing"
            self._note(
                path,
                "union_branch_missing",
                f"the writer may write {label(writer)}, the reader's union knows {known}: keep a branch for it",
            )
        else:
            self.compare(branch, writer, f"{path}|{_short(branch)}")

    def _compare_same_shape(self, reader: AvroType, writer: AvroType, path: str) -> None:
        match reader, writer:
            case Array(items=reads), Array(items=writes):
                self.compare(reads, writes, f"{path}[]")
            case Map(values=reads), Map(values=writes):
                self.compare(reads, writes, f"{path}{{}}")
            case Record(), Record():
                self._compare_records(reader, writer, path)
            case Enumeration(), Enumeration():
                self._compare_enums(reader, writer, path)
            case Fixed(), Fixed():
                if reader.size != writer.size:
                    text = f"the writer's {label(writer)} is not the reader's {label(reader)}: keep the size"
                    self._note(path, "fixed_size_changed", text)
                self._compare_logical(reader, writer, path)
            case Primitive(), Primitive():
                self._compare_logical(reader, writer, path)

    def _compare_records(self, reader: Record, writer: Record, path: str) -> None:
        written = {field.name: field for field in writer.fields}
        for field in reader.fields:
            below = f"{path}.{field.name}" if path else field.name
            source = _source(field, written)
            if source is not None:
                self.compare(field.type, source.type, below)
            elif field.default is NO_DEFAULT:
                self._note(
                    below,
                    "field_without_default",
                    f"the reader's {label(reader)} expects the field {field.name!r}, the writer's "
                    f"{label(writer)} has none: give it a default, or an alias if it was renamed",
                )

    def _compare_enums(self, reader: Enumeration, writer: Enumeration, path: str) -> None:
        if reader.default is not None:
            return
        known = set(reader.symbols)
        missing = [symbol for symbol in writer.symbols if symbol not in known]
        if missing:
            self._note(
                path,
                "enum_symbol_missing",
                f"the writer's {label(writer)} has {_listed(missing)}, the reader's {label(reader)} has not: "
                "keep the symbols or give the reader's enum a default",
            )

    def _compare_logical(self, reader: Primitive | Fixed, writer: Primitive | Fixed, path: str) -> None:
        if reader.logical is None or writer.logical is None:
            return
        if reader.logical != writer.logical:
            text = (
                f"the writer means {writer.logical}, the reader understands {reader.logical}: use a new field"
            )
            self._note(path, "logical_type_changed", text)
        elif reader.decimal != writer.decimal:
            text = (
                f"the writer's decimal has precision and scale {writer.decimal}, the reader's "
                f"{reader.decimal}: they must be equal"
            )
            self._note(path, "decimal_changed", text)

    def _note_other_type(self, reader: AvroType, writer: AvroType, path: str) -> None:
        if type(reader) is type(writer) and not isinstance(reader, Primitive):
            text = (
                f"the writer's {label(writer)} has another name than the reader's {label(reader)}: keep the "
                "name, or name the old one in the reader's aliases"
            )
            self._note(path, "name_changed", text)
        else:
            text = f"the writer's {label(writer)} cannot be read as {label(reader)}: keep the type or use a new field"
            self._note(path, "type_changed", text)

    def _note(self, path: str, rule: str, text: str) -> None:
        self.problems.append(Incompatibility(path, rule, text))


def _same_shape(reader: AvroType, writer: AvroType) -> bool:
    """Whether resolution goes on below: the same kind of type, the same name or a promotion."""
    match reader, writer:
        case Primitive(name=reads), Primitive(name=writes):
            return reads == writes or reads in PROMOTED.get(writes, ())
        case (Record() | Enumeration() | Fixed()) as reads, (Record() | Enumeration() | Fixed()) as writes:
            return type(reads) is type(writes) and _names_match(reads, writes)
        case _:
            return type(reader) is type(writer)


class _Branches:
    """The branches of a reader's union, found by what a writer's type is called; unions may be long."""

    def __init__(self, union: Union) -> None:
        self._by_call: dict[tuple[type[AvroType], str], AvroType] = {}
        # Later calls do not replace earlier ones: the full name wins over aliases, these over bare names.
        for names in (_full_names, _aliases, _bare_names):
            for branch in union.branches:
                for name in names(branch):
                    self._by_call.setdefault((type(branch), name), branch)

    def branch_for(self, writer: AvroType) -> AvroType | None:
        """The branch a resolving decoder takes: the same type first, then the first it can be read as."""
        kind = type(writer)
        for name in (*_full_names(writer), *_bare_names(writer), *(PROMOTED.get(_call(writer), ()))):
            if (kind, name) in self._by_call:
                return self._by_call[kind, name]
        return None


def _call(node: AvroType) -> str:
    return "" if isinstance(node, Array | Map | Union) else node.name


def _full_names(node: AvroType) -> tuple[str, ...]:
    return (_call(node),)


def _aliases(node: AvroType) -> tuple[str, ...]:
    return node.aliases if isinstance(node, Record | Enumeration | Fixed) else ()


def _bare_names(node: AvroType) -> tuple[str, ...]:
    return (_simple(node.name),) if isinstance(node, Record | Enumeration | Fixed) else ()


def _names_match(reader: Named, writer: Named) -> bool:
    """The specification is content with names without their namespaces."""
    return writer.name in (reader.name, *reader.aliases) or _simple(reader.name) == _simple(writer.name)


def _source(field: Field, written: dict[str, Field]) -> Field | None:
    for name in (field.name, *field.aliases):
        if name in written:
            return written[name]
    return None


def _simple(name: str) -> str:
    return name.rpartition(".")[2]


def _short(branch: AvroType) -> str:
    return type(branch).__name__.lower() if isinstance(branch, Array | Map | Union) else _simple(branch.name)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
