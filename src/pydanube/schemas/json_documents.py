"""The documents of one JSON Schema as the validator knows them; the only place that compiles them."""

from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import quote

import jsonschema_rs

from pydanube.schemas.documents import Json
from pydanube.schemas.json_types import Home
from pydanube.schemas.limits import refuse

VALIDATORS = {
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
    2019: jsonschema_rs.Draft201909Validator,
    2020: jsonschema_rs.Draft202012Validator,
}
DRAFT_NUMBERS = {
    4: jsonschema_rs.Draft4,
    6: jsonschema_rs.Draft6,
    7: jsonschema_rs.Draft7,
    2019: jsonschema_rs.Draft201909,
    2020: jsonschema_rs.Draft202012,
}
META_ADDRESSES = {
    4: "http://json-schema.org/draft-04/schema",
    6: "http://json-schema.org/draft-06/schema",
    7: "http://json-schema.org/draft-07/schema",
    2019: "https://json-schema.org/draft/2019-09/schema",
    2020: "https://json-schema.org/draft/2020-12/schema",
}
META_VALIDATORS = {
    # The meta-schemas are part of the library: nothing is fetched for them.
    draft: VALIDATORS[draft]({"$ref": address}, offline=True, validate_formats=False)
    for draft, address in META_ADDRESSES.items()
}
# Compiled subschemas kept for comparisons.
PARTS_MAX = 64
# The engine without look-around and back references takes linear time; its programs are kept small.
PATTERNS = jsonschema_rs.RegexOptions(size_limit=512 * 1024, dfa_size_limit=1024 * 1024)


class JsonDocuments:
    """The definition (under the empty name) and its references, compiled in parts or as a whole."""

    def __init__(self, documents: Mapping[str, Json], draft: int) -> None:
        self._documents = documents
        self._draft = draft
        self._registry: jsonschema_rs.Registry | None = None
        self._parts: dict[Home, jsonschema_rs.Validator] = {}

    def check_keywords(self) -> None:
        """Refuse documents that are no schemas of their draft."""
        for name, document in self._documents.items():
            try:
                META_VALIDATORS[self._draft].validate(document)
            except jsonschema_rs.ValidationError as error:
                place = "/".join(map(str, error.instance_path))
                raise refuse(
                    f"{name or 'the definition'} at '/{place[:128]}': {error.message[:256]}"
                ) from error

    def compiled(self) -> jsonschema_rs.Validator:
        """The validator of the definition."""
        try:
            return self._compile(self._documents[""], base=document_address(""))
        except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
            text = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
            hint = (
                " (patterns with look-around or back references are not supported)" if "regex" in text else ""
            )
            raise refuse(f"the definition cannot be used: {text[:256]}{hint}") from error

    def accepts(self, home: Home, value: Json) -> bool:
        if home not in self._parts:
            if len(self._parts) >= PARTS_MAX:
                self._parts.pop(next(iter(self._parts)))
            self._parts[home] = self._compile({"$ref": address_of(home)}, base="urn:danube:part")
        return self._parts[home].is_valid(value)

    def matches(self, pattern: str, text: str) -> bool:
        return _pattern(pattern).is_valid(text)

    def _compile(self, schema: Json, *, base: str) -> jsonschema_rs.Validator:
        if self._registry is None:
            resources = [(document_address(name), document) for name, document in self._documents.items()]
            self._registry = jsonschema_rs.Registry(resources, draft=DRAFT_NUMBERS[self._draft])
        return VALIDATORS[self._draft](
            schema,
            registry=self._registry,
            base_uri=base,
            validate_formats=False,
            pattern_options=PATTERNS,
            # Reasons go to logs and to other people's screens: they must not repeat the payload.
            mask="the value",
            offline=True,
        )


def document_address(name: str) -> str:
    """The address under which the validator knows a document."""
    return f"urn:danube:reference:{quote(name, safe='')}" if name else "urn:danube:definition"


def address_of(home: Home) -> str:
    """The address of a subschema, as a `$ref` spells it."""
    return f"{document_address(home.document)}#{quote(home.pointer, safe='/~')}"


@lru_cache(maxsize=256)
def _pattern(pattern: str) -> jsonschema_rs.Validator:
    return jsonschema_rs.Draft202012Validator({"pattern": pattern}, pattern_options=PATTERNS, offline=True)
