"""Which properties an object is taken to hold where its schema says nothing of additional ones.

By the letter such a schema lets anything through, so that describing one more property would narrow it. Nobody
means that: whoever writes `{id}` and later adds an optional `email` has written no `email` before. So data is
taken to hold the properties its schema declares, unless the schema says more of the names it lets through.
"""

from collections.abc import Iterable

from pydanube.schemas.json_types import EVERY_TYPE, OBJECT, Node

ANYTHING = Node()
NOTHING = Node(never=True)


def mentioned(written: Iterable[Node], maybe: Iterable[Node]) -> frozenset[str] | None:
    """All names an object is taken to have properties under; None where the assumption is not made.

    `written` are the nodes the object fits, `maybe` others it may fit: what those name may be there too, and
    what those say of additional properties ends the assumption as well.
    """
    known = list(written)
    if not any(_is_of_objects(node) for node in known):
        return None
    looking = [*known, *maybe]
    if any(_says_more(node) for node in looking):
        return None
    return frozenset(_names(looking))


def only(names: frozenset[str], written: Iterable[Node], maybe: Iterable[Node]) -> Node | None:
    """What holds for an object without any other properties; None for objects that are left free-form.

    A schema that declares no property, or asks for more of them than it names, describes no fixed set. It may
    still be given properties, but not be closed.
    """
    known = list(written)
    if not any(node.properties for node in known):
        return None
    least = max(node.properties_min for node in (*known, *maybe))
    if least and least > len(_names(known)):
        return None
    return Node(properties=dict.fromkeys(sorted(names), ANYTHING), additional=NOTHING)


def _is_of_objects(node: Node) -> bool:
    return bool(node.properties) or (node.types != EVERY_TYPE and OBJECT in node.types)


def _says_more(node: Node) -> bool:
    return (
        bool(node.patterns)
        or node.additional is not None
        or node.unevaluated_properties is not None
        or node.names is not None
    )


def _names(nodes: Iterable[Node]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        found.update(node.properties, node.required)
        for name, needed in node.dependent_required.items():
            found.update((name,), needed)
    return found
