"""How much of a definition is looked at before it is refused. See docs/schemas.md for the reasons."""

from collections.abc import Mapping

from pydanube.kernel.errors import ErrorCode, Rejected

DEFINITION_BYTES_MAX = 1024 * 1024
NESTING_MAX = 64
NODES_MAX = 10_000
REFERENCES_MAX = 64

# Levels of a payload that are followed. A legal document is a dozen deep; a hostile one has a level a byte.
PAYLOAD_DEPTH_MAX = 128
# Pairs of subschemas compared before a comparison ends with "cannot be shown".
COMPARISONS_MAX = 20_000
# Reasons reported for one pair of schemas; a reader fixes the first few.
PROBLEMS_MAX = 50


def refuse(text: str) -> Rejected:
    """The error for a definition that cannot be used."""
    return Rejected(text, ErrorCode.SCHEMA_INVALID)


def check_sizes(definition: bytes, references: Mapping[str, bytes]) -> None:
    """Refuse what is too large before anything reads it; references count towards the same bound."""
    if len(references) > REFERENCES_MAX:
        raise refuse(f"{len(references)} references: a schema may have at most {REFERENCES_MAX}")
    size = len(definition) + sum(map(len, references.values()))
    if size > DEFINITION_BYTES_MAX:
        raise refuse(
            f"the definition has {size} bytes with its references, at most {DEFINITION_BYTES_MAX} allowed"
        )
