"""From the text of a JSON Schema to nodes, for drafts 4, 6, 7, 2019-09 and 2020-12.

References are resolved here, among the definition and the given references only. On the way the document is
made plain for the validator: identifiers are dropped and every `$ref` becomes a pointer, so that nothing is
left that could be looked up elsewhere.
"""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from urllib.parse import quote, unquote

from pydanube.schemas.documents import Json, same_json
from pydanube.schemas.json_documents import address_of
from pydanube.schemas.json_types import INTEGER, NUMERIC, WHOLE, Bound, Evaluator, Home, Node
from pydanube.schemas.limits import refuse

DRAFTS = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
LATEST_DRAFT = 2020
# Values, not schemas: a key below them means nothing.
DATA_KEYWORDS = frozenset({"enum", "const", "default", "examples"})
CONTENT_KEYWORDS = ("contentEncoding", "contentMediaType")
CONTENT_DRAFTS = (6, 7)


def draft_of(document: Json) -> int:
    """The draft a document is written in; the latest unless it says otherwise."""
    named = document.get("$schema") if isinstance(document, dict) else None
    if named is None:
        return LATEST_DRAFT
    key = str(named).rstrip("#").partition("://")[2]
    if key not in DRAFTS:
        raise refuse(f"'$schema' is {str(named)[:128]!r}: use draft 4, 6, 7, 2019-09 or 2020-12")
    return DRAFTS[key]


class JsonSchemaLoader:
    """Nodes of a definition and of its references; changes the documents as said above."""

    def __init__(self, documents: Mapping[str, Json], draft: int, evaluator: Evaluator) -> None:
        self.documents = documents
        self._evaluator = evaluator
        self.draft = draft
        self._has_references = len(documents) > 1
        self._loaded: dict[Home, Node] = {}
        self._unread: list[tuple[Node, Home, dict[str, Json]]] = []
        document = documents[""]
        self._names = {name: name for name in documents}
        own_id = document.get("id" if draft == 4 else "$id") if isinstance(document, dict) else None
        if isinstance(own_id, str) and own_id.rstrip("#") not in self._names:
            self._names[own_id.rstrip("#")] = ""
        self._anchors = {
            (name, anchor): pointer
            for name, text in self.documents.items()
            for anchor, pointer in _anchors(text, draft)
        }

    def load(self) -> Node:
        """The root node, with all that can be reached from it."""
        root = self._node(Home("", ""), self.documents[""])
        if self._has_references:
            # The validator looks at every `$ref` of every document, used or not: none may be left as it was.
            for name, document in self.documents.items():
                self._node(Home(name, ""), document)
        # A list of work instead of recursion: chains of references are as long as the definition.
        while self._unread:
            self._read(*self._unread.pop())
        return root

    def _node(self, home: Home, schema: Json) -> Node:
        """The node of a subschema, whose keywords are read later: they may refer to it."""
        known = self._loaded.get(home)
        if known is None:
            known = self._loaded[home] = Node(home, self._evaluator, never=schema is False)
            if isinstance(schema, dict):
                self._unread.append((known, home, schema))
            elif not isinstance(schema, bool):
                raise refuse(f"{_place(home)} is neither an object nor a boolean")
        return known

    def _read(self, node: Node, home: Home, schema: dict[str, Json]) -> None:
        if home.pointer and schema.get("$schema") is not None and draft_of(schema) != self.draft:
            raise refuse(f"{_place(home)} is of another draft than the definition: use one")
        schema.pop("$schema", None)
        if self._has_references:
            self._map(home, schema, "$defs")
            self._map(home, schema, "definitions")
        self._fix_dynamic_references(home, schema)
        target = self._reference(home, schema)
        identifier = schema.pop("id" if self.draft == 4 else "$id", None)
        if home.pointer and isinstance(identifier, str) and not identifier.startswith("#"):
            raise refuse(f"{_place(home)} has an identifier of its own: give it as a reference instead")
        if target is not None:
            node.all_of = (target,)
            if self.draft < 2019:
                return  # these drafts ignore what stands beside a reference
        node.all_of += self._list(home, schema, "allOf")
        self._read_values(node, schema)
        self._read_scalars(node, schema)
        self._read_array(node, home, schema)
        self._read_object(node, home, schema)
        self._read_conditions(node, home, schema)
        self._merge_unevaluated(node)

    def _fix_dynamic_references(self, home: Home, schema: dict[str, Json]) -> None:
        """Make plain references of dynamic ones: within one document each has one possible target."""
        key = {2019: "$recursiveRef", 2020: "$dynamicRef"}.get(self.draft)
        if key is not None and key in schema:
            if self._has_references:
                raise refuse(f"'{key}' of {_place(home)} cannot be used together with references: use '$ref'")
            schema.setdefault("allOf", []).append({"$ref": schema.pop(key)})

    def _reference(self, home: Home, schema: dict[str, Json]) -> Node | None:
        ref = schema.get("$ref")
        if not isinstance(ref, str):
            return None
        uri, _, fragment = ref.partition("#")
        name = self._names.get(uri) if uri else home.document
        if name is None:
            raise refuse(
                f"'$ref' of {_place(home)} is {ref[:128]!r}: nothing is fetched, refer to '#…' or give the "
                "document as a reference"
            )
        target = self._home_of(name, unquote(fragment), ref)
        schema["$ref"] = (
            address_of(target) if name != home.document else "#" + quote(target.pointer, safe="/~")
        )
        return self._node(target, self._value_at(target, ref))

    def _home_of(self, name: str, fragment: str, ref: str) -> Home:
        if not fragment or fragment.startswith("/"):
            return Home(name, fragment)
        pointer = self._anchors.get((name, fragment))
        if pointer is None:
            raise refuse(f"the reference {ref[:128]!r} names an anchor that does not exist")
        return Home(name, pointer)

    def _value_at(self, home: Home, ref: str) -> Json:
        value = self.documents[home.document]
        for part in home.pointer.split("/")[1:]:
            key = part.replace("~1", "/").replace("~0", "~")
            if isinstance(value, dict) and key in value:
                value = value[key]
            elif isinstance(value, list) and key.isdecimal() and len(key) < 6 and int(key) < len(value):
                value = value[int(key)]
            else:
                raise refuse(f"the reference {ref[:128]!r} points at nothing")
        return value

    def _read_values(self, node: Node, schema: dict[str, Json]) -> None:
        kinds = schema.get("type")
        if kinds is not None:
            named = kinds if isinstance(kinds, list) else [kinds]
            node.types = frozenset().union(*(self._types(kind) for kind in named))
        if "enum" in schema:
            node.values = tuple(schema["enum"])
        if "const" in schema and self.draft > 4:
            const = schema["const"]
            # Beside an enum it is one of its values, or the schema holds for nothing.
            fits = node.values is None or any(same_json(const, value) for value in node.values)
            node.values = (const,) if fits else ()

    def _types(self, kind: str) -> frozenset[str]:
        if kind == "integer":
            return frozenset({INTEGER}) if self.draft == 4 else WHOLE
        return NUMERIC if kind == "number" else frozenset({kind})

    def _read_scalars(self, node: Node, schema: dict[str, Json]) -> None:
        node.lower = self._bound(schema, "minimum", "exclusiveMinimum")
        node.upper = self._bound(schema, "maximum", "exclusiveMaximum")
        if "multipleOf" in schema:
            node.multiple_of = Fraction(str(schema["multipleOf"]))
        node.length_min = int(schema.get("minLength", 0))
        node.length_max = _whole(schema, "maxLength")
        node.pattern = schema.get("pattern")
        if self.draft in CONTENT_DRAFTS:
            node.content = tuple((key, schema[key]) for key in CONTENT_KEYWORDS if key in schema)

    def _bound(self, schema: dict[str, Json], key: str, exclusive_key: str) -> Bound | None:
        limit, exclusive = schema.get(key), schema.get(exclusive_key)
        if self.draft == 4:
            return None if limit is None else Bound(Fraction(limit), bool(exclusive))
        bounds = [Bound(Fraction(exclusive), True)] if exclusive is not None else []
        if limit is not None:
            bounds.append(Bound(Fraction(limit), False))
        # Of two equal values the exclusive one comes first and is the tighter one.
        tighter = max if key == "minimum" else min
        return tighter(bounds, key=lambda bound: bound.value) if bounds else None

    def _read_array(self, node: Node, home: Home, schema: dict[str, Json]) -> None:
        if self.draft == 2020:
            node.prefix = self._list(home, schema, "prefixItems")
            node.rest = self._child(home, schema, "items")
        elif isinstance(schema.get("items"), list):
            node.prefix = self._list(home, schema, "items")
            node.rest = self._child(home, schema, "additionalItems")
        else:
            node.rest = self._child(home, schema, "items")
        node.items_min = int(schema.get("minItems", 0))
        node.items_max = _whole(schema, "maxItems")
        node.unique = schema.get("uniqueItems") is True
        if self.draft > 4:
            node.contains = self._child(home, schema, "contains")
        if self.draft >= 2019:
            node.contains_min = int(schema.get("minContains", 1))
            node.contains_max = _whole(schema, "maxContains")
            node.unevaluated_items = self._child(home, schema, "unevaluatedItems")

    def _read_object(self, node: Node, home: Home, schema: dict[str, Json]) -> None:
        node.properties = self._map(home, schema, "properties")
        node.patterns = self._map(home, schema, "patternProperties")
        node.additional = self._child(home, schema, "additionalProperties")
        node.required = frozenset(schema.get("required", ()))
        node.properties_min = int(schema.get("minProperties", 0))
        node.properties_max = _whole(schema, "maxProperties")
        if self.draft > 4:
            node.names = self._child(home, schema, "propertyNames")
        if self.draft >= 2019:
            node.unevaluated_properties = self._child(home, schema, "unevaluatedProperties")
            node.dependent_schemas = tuple(self._map(home, schema, "dependentSchemas").items())
            dependent = schema.get("dependentRequired", {})
            node.dependent_required = {name: frozenset(names) for name, names in dependent.items()}
        for name, needed in schema.get("dependencies", {}).items():
            if isinstance(needed, list):
                node.dependent_required[name] = node.dependent_required.get(name, frozenset()) | frozenset(
                    needed
                )
            else:
                needs = self._node(_below(home, "dependencies", name), needed)
                node.dependent_schemas += ((name, needs),)

    def _read_conditions(self, node: Node, home: Home, schema: dict[str, Json]) -> None:
        node.any_of = self._list(home, schema, "anyOf") or None
        node.one_of = self._list(home, schema, "oneOf") or None
        node.not_ = self._child(home, schema, "not")
        if self.draft >= 7 and "if" in schema:
            node.if_ = self._child(home, schema, "if")
            node.then = self._child(home, schema, "then")
            node.else_ = self._child(home, schema, "else")

    def _merge_unevaluated(self, node: Node) -> None:
        """Without neighbours that evaluate, "unevaluated" is the same as "additional"."""
        if node.in_place():
            return
        if node.unevaluated_properties is not None:
            node.additional = node.additional or node.unevaluated_properties
            node.unevaluated_properties = None
        if node.unevaluated_items is not None and node.contains is None:
            node.rest = node.rest or node.unevaluated_items
            node.unevaluated_items = None

    def _child(self, home: Home, schema: dict[str, Json], key: str) -> Node | None:
        return self._node(_below(home, key), schema[key]) if key in schema else None

    def _list(self, home: Home, schema: dict[str, Json], key: str) -> tuple[Node, ...]:
        return tuple(
            self._node(_below(home, key, str(i)), part) for i, part in enumerate(schema.get(key, ()))
        )

    def _map(self, home: Home, schema: dict[str, Json], key: str) -> dict[str, Node]:
        return {name: self._node(_below(home, key, name), part) for name, part in schema.get(key, {}).items()}


def _anchors(document: Json, draft: int) -> Iterator[tuple[str, str]]:
    """The names a document gives to its subschemas, with their pointers."""
    pending: list[tuple[str, Json]] = [("", document)]
    while pending:
        pointer, value = pending.pop()
        if isinstance(value, list):
            pending.extend((f"{pointer}/{index}", item) for index, item in enumerate(value))
        elif isinstance(value, dict):
            for key in ("id",) if draft == 4 else ("$id", "$anchor", "$dynamicAnchor"):
                name = value.get(key)
                if isinstance(name, str) and (key.endswith("nchor") or name.startswith("#")):
                    yield name.removeprefix("#"), pointer
            for key, item in value.items():
                if key not in DATA_KEYWORDS:
                    pending.append((f"{pointer}/{_escaped(key)}", item))


def _below(home: Home, *keys: str) -> Home:
    return Home(home.document, "/".join((home.pointer, *map(_escaped, keys))))


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _place(home: Home) -> str:
    where = f"'{home.pointer[:128]}'" if home.pointer else "the schema"
    return f"{where} of the reference {home.document!r}" if home.document else where


def _whole(schema: dict[str, Json], key: str) -> int | None:
    return int(schema[key]) if key in schema else None
