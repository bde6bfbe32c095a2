"""Avro: schemas whose data is one bare datum or an object container file."""

from collections.abc import Mapping

from pydanube.kernel.errors import Rejected
from pydanube.schemas.avro_compatibility import problems_between
from pydanube.schemas.avro_container import MAGIC, check_container
from pydanube.schemas.avro_datum import BadDatum, Walk, Work, compile_walk
from pydanube.schemas.avro_parser import parse_types
from pydanube.schemas.avro_types import AvroType
from pydanube.schemas.documents import fingerprint_of, read_document
from pydanube.schemas.format import Incompatibility, ParsedSchema, SchemaKind, other_kind
from pydanube.schemas.limits import check_sizes, refuse

# Schemas met in container headers whose verdict is remembered; producers of one topic use a handful.
WRITERS_MAX = 16


class AvroSchema:
    """One parsed Avro schema."""

    __slots__ = ("_walk", "_writers", "fingerprint", "root", "text")

    kind = SchemaKind.AVRO
    quick_bytes_max = 16 * 1024

    def __init__(self, text: str, fingerprint: str, root: AvroType) -> None:
        self.text = text
        self.fingerprint = fingerprint
        self.root = root
        self._walk = compile_walk(root)
        self._writers: dict[bytes, Walk | str] = {}

    def problems_reading(self, written: ParsedSchema) -> list[Incompatibility]:
        if not isinstance(written, AvroSchema):
            return other_kind(self, written)
        return problems_between(self.root, written.root)

    def check_payload(self, payload: bytes) -> str | None:
        try:
            end = self._walk(payload, 0, Work(len(payload)))
            if end == len(payload):
                return None
            problem = f"{len(payload) - end} bytes are left after the datum"
        except BadDatum as bad:
            problem = bad.explained()
        except IndexError:
            problem = "the payload ends inside the datum"
        # The magic is a legal beginning of a bare datum too, so this comes second.
        return self._container_problem(payload) if payload.startswith(MAGIC) else problem

    def _container_problem(self, payload: bytes) -> str | None:
        try:
            check_container(payload, self._walk_for)
        except BadDatum as bad:
            return bad.explained()
        except IndexError:
            return "the container is cut off"
        return None

    def _walk_for(self, header: bytes) -> Walk:
        """The walk for data of a schema found in a container, if this schema can read such data."""
        known = self._writers.get(header)
        if known is None:
            known = self._judge_writer(header)
            if len(self._writers) >= WRITERS_MAX:
                self._writers.pop(next(iter(self._writers)))
            self._writers[header] = known
        if isinstance(known, str):
            raise BadDatum(known)
        return known

    def _judge_writer(self, header: bytes) -> Walk | str:
        try:
            writer = parse_avro(header, {})
        except Rejected as error:
            return f"the schema in the container: {error.text}"
        problems = self.problems_reading(writer)
        if problems:
            return f"the schema in the container does not fit: '{problems[0].path}': {problems[0].text}"
        return writer._walk


def parse_avro(definition: bytes, references: Mapping[str, bytes]) -> AvroSchema:
    """Understand an Avro schema; `references` are declarations of named types by full name."""
    check_sizes(definition, references)
    document = read_document(definition)
    others = {name: read_document(text, name=f"the reference {name!r}") for name, text in references.items()}
    try:
        return AvroSchema(
            definition.decode(), fingerprint_of(document, others), parse_types(document, others)
        )
    except RecursionError as error:
        raise refuse(
            "the references lead more than a thousand types deep: declare fewer types in one"
        ) from error
