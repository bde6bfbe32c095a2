"""Whether facts contradict each other, so that no value has them all."""

from pydanube.schemas.json_facts import Facts
from pydanube.schemas.json_types import ARRAY, NUMERIC, OBJECT, STRING

# How far from the value a contradiction is looked for: a tag in a required property is one step.
LOOK_BELOW = 3
CASES_MAX = 64
STEPS_MAX = 20_000


class Emptiness:
    """Looks for contradictions, with as many steps as one comparison may spend on them."""

    def __init__(self) -> None:
        self._verdicts: dict[object, bool] = {}
        # Keys are addresses of nodes, which the facts keep alive.
        self._kept: list[Facts] = []

    def found(self, facts: Facts, *, look_below: int = LOOK_BELOW) -> bool:
        """True only if no value has these facts; False also when the steps are spent."""
        key = (facts.key, look_below)
        known = self._verdicts.get(key)
        if known is None:
            if len(self._kept) >= STEPS_MAX:
                return False
            self._kept.append(facts)
            known = self._verdicts[key] = _is_plain(facts) or (
                look_below > 0 and self._below(facts, look_below - 1)
            )
        return known

    def _below(self, facts: Facts, look_below: int) -> bool:
        if facts.values is not None:
            return False
        if facts.types == {OBJECT} and any(
            self.found(facts.at_property(name), look_below=look_below) for name in sorted(facts.required)
        ):
            return True
        return any(
            len(rows) <= CASES_MAX
            and all(self.found(facts.in_case(case, row), look_below=look_below) for row in rows)
            for case, rows in facts.cases.items()
        )


def _is_plain(facts: Facts) -> bool:
    """Whether the contradiction is between limits of the value itself."""
    if not facts.types:
        return True
    if facts.values is not None:
        return not facts.values
    if facts.types <= NUMERIC:
        return _no_number(facts)
    if facts.types == {STRING}:
        end = facts.most("length_max")
        return end is not None and facts.least("length_min") > end
    if facts.types == {ARRAY}:
        return facts.least("items_min") > facts.items_end
    if facts.types == {OBJECT}:
        return max(len(facts.required), facts.least("properties_min")) > facts.properties_end
    return False


def _no_number(facts: Facts) -> bool:
    lower, upper = facts.lower, facts.upper
    if lower is None or upper is None:
        return False
    return lower.value > upper.value or (lower.value == upper.value and (lower.exclusive or upper.exclusive))
