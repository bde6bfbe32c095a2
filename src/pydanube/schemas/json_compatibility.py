"""Containment of JSON Schemas: does the reader accept every value the writer's schema accepts?

No program decides that for every pair of schemas. This one proves it rule by rule: each keyword of the reader
must follow from what is known of the written value. What cannot be shown counts as incompatible, with the
reason. A proof may assume what it set out to prove once it has gone a step deeper into the value, which is
how recursive schemas end; a failed attempt takes back what was proved on that assumption.
"""

from dataclasses import replace

from pydanube.schemas.documents import Json
from pydanube.schemas.format import Incompatibility
from pydanube.schemas.json_emptiness import Emptiness
from pydanube.schemas.json_facts import ONLY, Facts
from pydanube.schemas.json_keywords import keyword_problems
from pydanube.schemas.json_same import Sameness
from pydanube.schemas.json_types import Node
from pydanube.schemas.limits import COMPARISONS_MAX, PROBLEMS_MAX

DEPTH_MAX = 80
# Comparisons that take more than a look: about a second of work.
ATTEMPTS_MAX = 5_000
CASES_MAX = 64

Problems = list[Incompatibility]


def problems_between(reader: Node, writer: Node) -> Problems:
    """Why some value of the writer's schema may not fit the reader's; empty when none can."""
    try:
        problems = Containment().problems(Facts([writer]), reader)
    except (_TooMuch, RecursionError):
        text = "the schemas are too large or too entangled to be compared: simplify or split them"
        return [Incompatibility("", "cannot_be_shown", text)]
    unique = dict.fromkeys(replace(problem, path=problem.path.removeprefix(".")) for problem in problems)
    return list(unique)[:PROBLEMS_MAX]


class _TooMuch(Exception):
    """The comparison has taken as many steps as it may."""


class Containment:
    """One comparison: what it has proved, what it could not prove, and the steps it has left."""

    def __init__(self) -> None:
        self._proved: dict[object, None] = {}
        self._failed: dict[object, Problems] = {}
        # Keys are addresses of nodes: the facts made up on the way must stay alive as long as they.
        self._kept: list[Facts] = []
        self._depth = 0
        self._attempts_left = ATTEMPTS_MAX
        self._impossible = Emptiness()
        self.same = Sameness().found

    def problems(self, facts: Facts, node: Node) -> Problems:
        """Why a value with these facts may not fit the node; paths are relative to the value."""
        key = (facts.key, id(node))
        if key in self._proved:
            return []
        if key in self._failed:
            return self._failed[key]
        if len(self._kept) >= COMPARISONS_MAX or self._depth >= DEPTH_MAX or self._attempts_left <= 0:
            raise _TooMuch
        self._kept.append(facts)
        mark = len(self._proved)
        self._proved[key] = None
        self._depth += 1
        problems = self._attempts(facts, node, mark + 1)
        self._depth -= 1
        if problems:
            self._forget(mark)
            # With fewer assumptions it could only fail again.
            self._failed[key] = problems
        return problems

    def holds(self, facts: Facts, node: Node) -> bool:
        """Whether every value with these facts fits the node."""
        return not self.problems(facts, node)

    def _forget(self, mark: int) -> None:
        while len(self._proved) > mark:
            self._proved.popitem()

    def _attempts(self, facts: Facts, node: Node, mark: int) -> Problems:
        if any(self.same(known, node) for known in facts.atoms) or self._impossible.found(facts):
            return []
        if facts.values is not None:
            return _value_problems(facts.values, node)
        # Each looks at all nodes of the value.
        self._attempts_left -= 1 + (len(facts.atoms) + len(facts.maybe)) // 8
        problems = self._direct(facts, node)
        if problems and facts.cases:
            case, rows = next(iter(facts.cases.items()))
            if len(rows) <= CASES_MAX:
                self._forget(mark)
                return self._in_all([facts.in_case(case, row) for row in rows], node)
        if problems and not any(facts.types <= only.types for only in ONLY) and _by_cases(node):
            self._forget(mark)
            return self._in_all([facts.plus(only) for only in ONLY if only.types & facts.types], node)
        return problems

    def _in_all(self, cases: list[Facts], node: Node) -> Problems:
        return [problem for facts in cases for problem in self.problems(facts, node)]

    def _direct(self, facts: Facts, node: Node) -> Problems:
        problems = list(keyword_problems(self, facts, node))
        for part in node.all_of:
            problems += self.problems(facts, part)
        if node.any_of is not None and not any(self.holds(facts, branch) for branch in node.any_of):
            problems += self._no_branch(facts, node.any_of, "anyOf")
        if node.one_of is not None:
            problems += self._one_of_problems(facts, node.one_of)
        if node.not_ is not None and not self._excluded(facts, node.not_):
            problems.append(_unshown("what the reader's 'not' excludes may be written"))
        if node.if_ is not None:
            problems += self._condition_problems(facts, node)
        return problems

    def _excluded(self, facts: Facts, node: Node) -> bool:
        if any(known.not_ is not None and self.same(known.not_, node) for known in facts.atoms):
            return True
        return self._impossible.found(facts.plus(node))

    def _one_of_problems(self, facts: Facts, branches: tuple[Node, ...]) -> Problems:
        for known in facts.atoms:
            if (
                known.one_of
                and len(known.one_of) == len(branches)
                and all(map(self.same, known.one_of, branches))
            ):
                return []
        fitting = [branch for branch in branches if self.holds(facts, branch)]
        if not fitting:
            return self._no_branch(facts, branches, "oneOf")
        if all(branch is fitting[0] or self._impossible.found(facts.plus(branch)) for branch in branches):
            return []
        return [
            _unshown("more than one branch of the reader's 'oneOf' may fit: use 'anyOf' or tell them apart")
        ]

    def _no_branch(self, facts: Facts, branches: tuple[Node, ...], keyword: str) -> Problems:
        if len(branches) == 1:
            return self.problems(facts, branches[0])
        # Of several branches, the one that was nearest to fit explains most.
        nearest = min((self.problems(facts, branch) for branch in branches), key=len)
        text = (
            f"no branch of the reader's '{keyword}' takes all that may be written; nearest: {nearest[0].text}"
        )
        return [Incompatibility(nearest[0].path, "no_branch", text)]

    def _condition_problems(self, facts: Facts, node: Node) -> Problems:
        assert node.if_ is not None
        for known in facts.atoms:
            if known.if_ and self.same(known.if_, node.if_) and self._same_outcome(known, node):
                return []
        problems: Problems = []
        if node.then is not None:
            problems += self.problems(facts.plus(node.if_), node.then)
        if node.else_ is not None and not self.holds(facts, node.if_):
            problems += self.problems(facts, node.else_)
        return problems

    def _same_outcome(self, known: Node, node: Node) -> bool:
        pairs = ((known.then, node.then), (known.else_, node.else_))
        return all(one is other is None or (one and other and self.same(one, other)) for one, other in pairs)


def _by_cases(node: Node) -> bool:
    return bool(node.any_of or node.one_of or node.if_ or node.not_ or any(map(_by_cases, node.all_of)))


def _value_problems(values: list[Json], node: Node) -> Problems:
    refused = [value for value in values if not node.accepts(value)]
    if not refused:
        return []
    shown = ", ".join(repr(value)[:40] for value in refused[:5])
    text = f"the writer may write {shown}, which the reader refuses: keep accepting it"
    return [Incompatibility("", "value_refused", text)]


def _unshown(text: str) -> Incompatibility:
    return Incompatibility("", "cannot_be_shown", f"cannot be shown to fit: {text}")
