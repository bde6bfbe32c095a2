"""The decision: may this principal do this here? Without I/O, clock or cache; what is not granted is denied."""

from collections.abc import Iterable, Mapping, Set
from typing import NamedTuple

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


class Bindings:
    """Bindings by whom and where they are for, so that a decision looks at few of them."""

    def __init__(self, bindings: Iterable[Binding] = ()) -> None:
        self._by_grantee: dict[tuple[str, str, Place], dict[str, Binding]] = {}
        for binding in bindings:
            self.add(binding)

    def add(self, binding: Binding) -> None:
        """Add one, in the place of an earlier one of the same id, principal and place."""
        self._by_grantee.setdefault(_grantee(binding), {})[binding.id] = binding

    def remove(self, binding: Binding) -> None:
        grantee = _grantee(binding)
        held = self._by_grantee.get(grantee, {})
        held.pop(binding.id, None)
        if not held:
            self._by_grantee.pop(grantee, None)

    def of(self, principal: Principal, place: Place) -> Iterable[Binding]:
        held = self._by_grantee.get((principal.kind, principal.name, place))
        return () if held is None else held.values()


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
    for place in places_of(resource):
        for binding in bindings.of(principal, place):
            for role_name in binding.role_names:
                role = roles.get(role_name)
                if role is not None and permission in role.permissions:
                    return Decision(True, f"role {role_name} by {place.scope} binding {binding.id}")
    return Decision(False, f"no role of {principal} grants {permission} on {resource}")


def _grantee(binding: Binding) -> tuple[str, str, Place]:
    return (binding.principal_type, binding.principal_name, binding.place)
