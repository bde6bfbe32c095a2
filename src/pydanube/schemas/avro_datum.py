"""Checks of bare Avro data: walks the bytes of one datum without building it.

Decoders made for trusted files follow a payload wherever it leads: a megabyte of one repeated byte nests a
recursive record a million deep, five bytes announce 10^18 nulls. Here the depth is bounded, and so is the
work in relation to the bytes that were actually sent.
"""

from collections.abc import Callable

from pydanube.schemas.avro_types import Array, AvroType, Enumeration, Fixed, Map, Primitive, Record, Union
from pydanube.schemas.limits import PAYLOAD_DEPTH_MAX

# A byte may be an item, a record, its field and a branch at once; nulls and empty records take no bytes at all.
STEPS_PER_BYTE = 4
FREE_STEPS = 10_000
VARINT_BYTES_MAX = 10
# Bits of a varint's first byte that say "more bytes follow" and "negative": without them the value is byte / 2.
NOT_SHORT = 0x81


class BadDatum(Exception):
    """The bytes are no datum; `where` collects the path from the inside out."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text
        self.where: list[str] = []

    def explained(self) -> str:
        path = "".join(reversed(self.where)).removeprefix(".")
        return f"'{path}': {self.text}" if path else self.text


class Work:
    """What is left of the steps a payload may cost, and how deep the walk is."""

    __slots__ = ("depth", "steps")

    def __init__(self, payload_bytes: int) -> None:
        self.steps = STEPS_PER_BYTE * payload_bytes + FREE_STEPS
        self.depth = 0

    def spend(self, steps: int) -> None:
        self.steps -= steps
        if self.steps < 0:
            raise BadDatum("more values than bytes: such a payload is not followed")


# Takes the payload and a position, returns the position after the value.
Walk = Callable[[bytes, int, Work], int]


def compile_walk(root: AvroType) -> Walk:
    """A function that walks one datum of the type and raises `BadDatum` where the bytes are none."""
    return _Compiler().walk(root)


class _Compiler:
    def __init__(self) -> None:
        self._walks: dict[int, Walk] = {}

    def walk(self, node: AvroType) -> Walk:
        known = self._walks.get(id(node))
        if known is None:
            known = self._record(node) if isinstance(node, Record) else self._compile(node)
            self._walks[id(node)] = known
        return known

    def _compile(self, node: AvroType) -> Walk:
        match node:
            case Primitive(name=name):
                return PRIMITIVE_WALKS[name]
            case Fixed(size=size):
                return _fixed_walk(size)
            case Enumeration(symbols=symbols):
                return _enum_walk(len(symbols))
            case Array(items=items):
                return _blocks_walk(self.walk(items))
            case Map(values=values):
                return _blocks_walk(_entry_walk(self.walk(values)))
            case Union(branches=branches):
                return _union_walk([self.walk(branch) for branch in branches])
            case Record():
                return self._record(node)

    def _record(self, node: Record) -> Walk:
        fields: list[tuple[str, Walk]] = []
        walk = _record_walk(fields)
        # Known before its fields are compiled: they may mention the record.
        self._walks[id(node)] = walk
        fields.extend((field.name, self.walk(field.type)) for field in node.fields)
        return walk


def _walk_null(data: bytes, at: int, work: Work) -> int:
    return at


def _walk_boolean(data: bytes, at: int, work: Work) -> int:
    if data[at] > 1:
        raise BadDatum(f"byte {at} is {data[at]}: a boolean is 0 or 1")
    return at + 1


def _walk_long(data: bytes, at: int, work: Work) -> int:
    start = at
    while data[at] & 0x80:
        at += 1
    if at - start >= VARINT_BYTES_MAX - 1:
        read_long(data, start)
    return at + 1


def _walk_int(data: bytes, at: int, work: Work) -> int:
    start = at
    while data[at] & 0x80:
        at += 1
    if at - start >= 4 and not -(2**31) <= read_long(data, start)[0] < 2**31:
        raise BadDatum(f"the integer at byte {start} does not fit 32 bits")
    return at + 1


def _walk_float(data: bytes, at: int, work: Work) -> int:
    return at + 4 if at + 4 <= len(data) else _within(data, at, 4)


def _walk_double(data: bytes, at: int, work: Work) -> int:
    return at + 8 if at + 8 <= len(data) else _within(data, at, 8)


def _walk_bytes(data: bytes, at: int, work: Work) -> int:
    size, at = read_long(data, at)
    return _within(data, at, size)


def _walk_string(data: bytes, at: int, work: Work) -> int:
    size = data[at]
    if size & NOT_SHORT:
        size, at = read_long(data, at)
    else:
        size >>= 1
        at += 1
    end = at + size
    if size < 0 or end > len(data):
        _within(data, at, size)
    try:
        data[at:end].decode()
    except UnicodeDecodeError as error:
        raise BadDatum(f"the string at byte {at} is not UTF-8") from error
    return end


PRIMITIVE_WALKS: dict[str, Walk] = {
    "null": _walk_null,
    "boolean": _walk_boolean,
    "int": _walk_int,
    "long": _walk_long,
    "float": _walk_float,
    "double": _walk_double,
    "bytes": _walk_bytes,
    "string": _walk_string,
}


def _fixed_walk(size: int) -> Walk:
    return lambda data, at, work: _within(data, at, size)


def _enum_walk(symbols: int) -> Walk:
    def walk(data: bytes, at: int, work: Work) -> int:
        index, end = read_long(data, at)
        if not 0 <= index < symbols:
            raise BadDatum(f"byte {at} chooses symbol {index} of an enum with {symbols}")
        return end

    return walk


def _union_walk(branches: list[Walk]) -> Walk:
    count = len(branches)

    def walk(data: bytes, at: int, work: Work) -> int:
        index = data[at]
        if index & NOT_SHORT or index >= 2 * count:
            index, end = read_long(data, at)
            if not 0 <= index < count:
                raise BadDatum(f"byte {at} chooses branch {index} of a union with {count}")
            return branches[index](data, end, work)
        return branches[index >> 1](data, at + 1, work)

    return walk


def _entry_walk(values: Walk) -> Walk:
    return lambda data, at, work: values(data, _walk_string(data, at, work), work)


def _blocks_walk(item: Walk) -> Walk:
    def walk(data: bytes, at: int, work: Work) -> int:
        index = 0
        try:
            while True:
                count = data[at]
                if count == 0:
                    return at + 1
                count, at = read_long(data, at)
                if count == 0:
                    return at
                if count < 0:
                    # The size of the block in bytes is there for readers that skip it.
                    count = -count
                    size, at = read_long(data, at)
                    _within(data, at, size)
                work.spend(count)
                for _ in range(count):
                    at = item(data, at, work)
                    index += 1
        except BadDatum as bad:
            bad.where.append(f"[{index}]")
            raise

    return walk


def _record_walk(fields: list[tuple[str, Walk]]) -> Walk:
    def walk(data: bytes, at: int, work: Work) -> int:
        work.depth += 1
        work.steps -= len(fields)
        if work.depth > PAYLOAD_DEPTH_MAX:
            raise BadDatum(f"nested more than {PAYLOAD_DEPTH_MAX} records deep")
        if work.steps < 0:
            work.spend(0)
        name = ""
        try:
            for name, field in fields:  # noqa: B007  (the texts below name it)
                at = field(data, at, work)
        except BadDatum as bad:
            bad.where.append(f".{name}")
            raise
        except IndexError:
            short = BadDatum("the payload ends inside this field")
            short.where.append(f".{name}")
            raise short from None
        work.depth -= 1
        return at

    return walk


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """A zig-zag varint and the position after it."""
    byte = data[at]
    value = byte & 0x7F
    shift = 7
    at += 1
    while byte & 0x80:
        if shift > 63:
            raise BadDatum(f"the integer before byte {at} has more than {VARINT_BYTES_MAX} bytes")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    if value >= 2**64:
        raise BadDatum(f"the integer before byte {at} does not fit 64 bits")
    return (value >> 1) ^ -(value & 1), at


def _within(data: bytes, at: int, size: int) -> int:
    if size < 0:
        raise BadDatum(f"a length before byte {at} is negative")
    if at + size > len(data):
        raise BadDatum(f"{at + size - len(data)} bytes are missing at the end")
    return at + size
