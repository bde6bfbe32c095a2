"""The compatibility modes: which earlier versions a candidate is compared with, and in which direction."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from pydanube.schemas.format import CompatibilityMode, Incompatibility, ParsedSchema

BACKWARD = {
    CompatibilityMode.BACKWARD,
    CompatibilityMode.BACKWARD_TRANSITIVE,
    CompatibilityMode.FULL,
    CompatibilityMode.FULL_TRANSITIVE,
}
FORWARD = {
    CompatibilityMode.FORWARD,
    CompatibilityMode.FORWARD_TRANSITIVE,
    CompatibilityMode.FULL,
    CompatibilityMode.FULL_TRANSITIVE,
}
TRANSITIVE = {
    CompatibilityMode.BACKWARD_TRANSITIVE,
    CompatibilityMode.FORWARD_TRANSITIVE,
    CompatibilityMode.FULL_TRANSITIVE,
}


def check_compatibility(
    mode: CompatibilityMode,
    candidate: ParsedSchema,
    versions: Sequence[ParsedSchema],
    *,
    numbers: Sequence[int] | None = None,
) -> list[Incompatibility]:
    """Every reason why the candidate may not follow `versions` (oldest first); empty when it may.

    Args:
        mode: what is promised; `NONE` promises nothing.
        candidate: the schema that would become the next version.
        versions: what the subject has now.
        numbers: their version numbers for the texts, when some were deleted; 1, 2, 3, … otherwise.
    """
    labelled = list(zip(numbers or range(1, len(versions) + 1), versions, strict=True))
    if mode not in TRANSITIVE:
        labelled = labelled[-1:]
    return [
        problem for number, version in labelled for problem in _problems(mode, candidate, version, number)
    ]


def _problems(
    mode: CompatibilityMode, candidate: ParsedSchema, version: ParsedSchema, number: int
) -> Iterator[Incompatibility]:
    if mode in BACKWARD:
        for problem in candidate.problems_reading(version):
            yield _told(problem, f"backward: the new schema cannot read data of version {number}")
    if mode in FORWARD:
        for problem in version.problems_reading(candidate):
            yield _told(problem, f"forward: version {number} cannot read data of the new schema")


def _told(problem: Incompatibility, direction: str) -> Incompatibility:
    place = f" at '{problem.path}'" if problem.path else ""
    return replace(problem, text=f"{direction}{place}: {problem.text}")
