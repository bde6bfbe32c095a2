"""The decision: may this principal do this here? Without I/O, clock or cache; what is not granted is denied."""

from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

import msgspec

from pydanube.security.permissions import Permission, Place, Resource, Scope, place_of, places_of
from pydanube.security.principals import Principal, PrincipalKind


class Role(msgspec.Struct, frozen=True, kw_only=True):
    """A named set of permissions. A name that is no permission grants nothing."""

    name: str
    permissions: tuple[str, ...]
    system: bool = False
    """Cannot be deleted."""


class Binding(msgspec.Struct, frozen=True, kw_only=True):
    """Gives one principal some roles, everywhere or on one namespace or topic."""

    id: str
    principal_type: str
    principal_name: str
    role_names: tuple[str, ...]
    scope: Scope
    resource_name: str = ""

    @property
    def place(self) -> Place:
        return place_of(self.scope, self.resource_name)


class Decision(NamedTuple):
    allowed: bool
    why: str


Held = dict[Place, dict[str, Binding]]
"""What one principal was given: by place, then by the binding's id."""
_NONE: Final[dict[str, Binding]] = {}


class Bindings:
    """Bindings by whom and where they are for, so that a decision looks at few of them."""

    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self._held: dict[tuple[str, str], Held] = {}
        for binding in bindings:
            self.add(binding)

    def add(self, binding: Binding) -> None:
        """Add one, in the place of an earlier one of the same id, principal and place."""
        held = self._held.setdefault((binding.principal_type, binding.principal_name), {})
        held.setdefault(binding.place, {})[binding.id] = binding

    def remove(self, binding: Binding) -> None:
        principal, place = (binding.principal_type, binding.principal_name), binding.place
        held = self._held.get(principal, {})
        here = held.get(place, {})
        here.pop(binding.id, None)
        if not here:
            held.pop(place, None)
        if not held:
            self._held.pop(principal, None)

    def of(self, principal: Principal) -> Held | None:
        return self._held.get(principal)


def decide(
    principal: Principal,
    permission: Permission,
    resource: Resource,
    *,
    roles: Mapping[str, Role],
    bindings: Bindings,
    super_admins: Set[str],
) -> Decision:
    """Allow brokers and super admins everything, others what a role bound to them grants; anonymous callers nothing.

    Whoever runs without security does not ask: `guard.py`.
    """
    if principal.kind is PrincipalKind.ANONYMOUS:
        return Decision(False, "the caller is not authenticated")
    if principal.kind is PrincipalKind.BROKER_INTERNAL:
        return Decision(True, "a broker of the cluster")
    if principal.name in super_admins:
        return Decision(True, "a super admin")
    held = bindings.of(principal)
    if held:
        for place in places_of(resource):
            for binding in held.get(place, _NONE).values():
                for role_name in binding.role_names:
                    role = roles.get(role_name)
                    if role is not None and permission in role.permissions:
                        return Decision(True, f"role {role_name} by {place.scope} binding {binding.id}")
    return Decision(False, f"no role of {principal} grants {permission} on {resource}")
