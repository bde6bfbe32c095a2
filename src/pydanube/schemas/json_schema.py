"""JSON Schema: payloads that are one JSON document."""

from collections.abc import Mapping

import jsonschema_rs
import msgspec

from pydanube.schemas.documents import Json, fingerprint_of, read_document
from pydanube.schemas.format import Incompatibility, ParsedSchema, SchemaKind, other_kind
from pydanube.schemas.json_compatibility import problems_between
from pydanube.schemas.json_cost import checks_per_place
from pydanube.schemas.json_documents import JsonDocuments
from pydanube.schemas.json_loader import JsonSchemaLoader, draft_of
from pydanube.schemas.json_types import Node
from pydanube.schemas.limits import check_sizes, refuse

# Bytes of a payload times checks a place: about a second of work at worst.
WORK_MAX = 100_000_000
# The same, for about five milliseconds.
QUICK_WORK_MAX = 500_000
REASON_CHARACTERS_MAX = 500

_decode = msgspec.json.decode


class JsonSchema:
    """One parsed JSON Schema."""

    __slots__ = (
        "_is_valid",
        "_payload_bytes_max",
        "_validator",
        "fingerprint",
        "quick_bytes_max",
        "root",
        "text",
    )

    kind = SchemaKind.JSON_SCHEMA

    def __init__(
        self, text: str, fingerprint: str, root: Node, validator: jsonschema_rs.Validator, checks: int
    ) -> None:
        self.text = text
        self.fingerprint = fingerprint
        self.root = root
        self._validator = validator
        self._is_valid = validator.is_valid
        self._payload_bytes_max = WORK_MAX // checks
        self.quick_bytes_max = QUICK_WORK_MAX // checks

    def problems_reading(self, written: ParsedSchema) -> list[Incompatibility]:
        if not isinstance(written, JsonSchema):
            return other_kind(self, written)
        if written.fingerprint == self.fingerprint:
            return []
        return problems_between(self.root, written.root)

    def check_payload(self, payload: bytes) -> str | None:
        if len(payload) > self._payload_bytes_max:
            return f"{len(payload)} bytes: this schema is checked up to {self._payload_bytes_max} bytes only"
        try:
            value = _decode(payload)
        except RecursionError:
            return "the document is nested too deeply"
        except ValueError as error:
            return f"not JSON: {error}"
        try:
            return None if self._is_valid(value) else self._why_not(value)
        except ValueError as error:
            # Depths and numbers the decoder takes and the validator does not.
            return f"the document cannot be checked: {error}"

    def _why_not(self, value: Json) -> str:
        try:
            # Ends with the first error; the others of a hostile payload would take minutes to collect.
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return _reason(error)
        return "the document does not fit"


def _reason(error: jsonschema_rs.ValidationError) -> str:
    place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)
    reason = f"'{place.removeprefix('.')}': {error.message}" if place else error.message
    return reason[:REASON_CHARACTERS_MAX]


def parse_json_schema(definition: bytes, references: Mapping[str, bytes]) -> JsonSchema:
    """Understand a JSON Schema; `references` are the documents a `$ref` may name besides the definition."""
    check_sizes(definition, references)
    document = read_document(definition)
    others = {
        name: read_document(text, name=f"the reference {name!r}") for name, text in references.items() if name
    }
    fingerprint = fingerprint_of(document, others)
    draft = draft_of(document)
    documents = {"": document, **others}
    compiler = JsonDocuments(documents, draft)
    compiler.check_keywords()
    try:
        root = JsonSchemaLoader(documents, draft, compiler).load()
    except (TypeError, ValueError, AttributeError) as error:
        # Only what stands in a place no draft knows as a schema was not checked before.
        raise refuse(f"a '$ref' leads to something that is no schema: {error}") from error
    checks = checks_per_place(root)
    return JsonSchema(definition.decode(), fingerprint, root, compiler.compiled(), checks)
