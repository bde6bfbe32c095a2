"""Of any roles and bindings: nothing is granted that no binding grants, and granting more takes nothing away."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pydanube.kernel.errors import Rejected
from pydanube.kernel.names import TopicName
from pydanube.security.permissions import (
    CLUSTER,
    Permission,
    Scope,
    broker_resource,
    namespace_resource,
    places_of,
    subject_resource,
    topic_resource,
)
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.rbac import Binding, Bindings, Role, decide

NAMES = st.sampled_from(["a", "b"])
SEGMENTS = st.sampled_from(["n", "m"])
ROLE_NAMES = st.sampled_from(["r", "s", "t"])
PERMISSIONS = st.sampled_from(Permission)
PRINCIPALS = st.builds(
    Principal,
    st.sampled_from([PrincipalKind.USER, PrincipalKind.SERVICE_ACCOUNT, PrincipalKind.ANONYMOUS]),
    NAMES,
)
TOPICS = st.builds("/{}/{}".format, SEGMENTS, SEGMENTS)
RESOURCES = st.one_of(
    st.just(CLUSTER),
    st.just(broker_resource("1")),
    st.builds(namespace_resource, SEGMENTS),
    st.builds(topic_resource, TOPICS),
    st.builds(subject_resource, st.one_of(TOPICS, SEGMENTS, st.builds("{}/{}".format, SEGMENTS, SEGMENTS))),
)
ROLES = st.dictionaries(ROLE_NAMES, st.sets(PERMISSIONS), max_size=3).map(
    lambda roles: {name: Role(name=name, permissions=tuple(held)) for name, held in roles.items()}
)
BINDINGS = st.builds(
    Binding,
    id=st.sampled_from(["1", "2", "3"]),
    principal_type=st.sampled_from([*PrincipalKind, "robot"]),
    principal_name=NAMES,
    role_names=st.lists(ROLE_NAMES, min_size=1, max_size=2).map(tuple),
    scope=st.sampled_from(Scope),
    resource_name=st.one_of(TOPICS, SEGMENTS, SEGMENTS.map("/{}".format), st.just("")),
)
QUESTIONS = st.tuples(PRINCIPALS, PERMISSIONS, RESOURCES)
SETS_OF_BINDINGS = st.lists(BINDINGS, max_size=8)


def is_allowed(question, roles, bindings, super_admins=frozenset()) -> bool:
    return decide(*question, roles=roles, bindings=Bindings(bindings), super_admins=super_admins).allowed


@given(QUESTIONS, ROLES, SETS_OF_BINDINGS, BINDINGS)
def test_another_binding_never_takes_access_away(question, roles, bindings, added) -> None:
    added = msgspec.structs.replace(added, id="new")
    before = is_allowed(question, roles, bindings)
    after = is_allowed(question, roles, [*bindings, added])
    assert after or not before


@given(QUESTIONS, ROLES, SETS_OF_BINDINGS, ROLE_NAMES, PERMISSIONS)
def test_another_permission_never_takes_access_away(question, roles, bindings, name, added) -> None:
    before = is_allowed(question, roles, bindings)
    held = roles[name].permissions if name in roles else ()
    wider = roles | {name: Role(name=name, permissions=(*held, added))}
    assert is_allowed(question, wider, bindings) or not before


@given(QUESTIONS, ROLES, SETS_OF_BINDINGS)
def test_whatever_is_allowed_some_binding_grants(question, roles, bindings) -> None:
    # Decided a second time, the slow and obvious way.
    principal, permission, resource = question
    path = resource.name.strip("/")

    def reaches(binding: Binding) -> bool:
        name = binding.resource_name.strip("/")
        if binding.scope == "cluster":
            return True
        if binding.scope == "namespace":
            return resource.kind in ("namespace", "topic", "subject") and path.split("/")[0] == name
        return resource.kind in ("topic", "subject") and path == name

    kept = {}
    for binding in bindings:  # a later one of the same id, principal and place replaces the earlier
        kept[(binding.principal_type, binding.principal_name, binding.place, binding.id)] = binding
    expected = principal.kind != "anonymous" and any(
        (binding.principal_type, binding.principal_name) == (principal.kind, principal.name)
        and reaches(binding)
        and any(name in roles and permission in roles[name].permissions for name in binding.role_names)
        for binding in kept.values()
    )
    assert is_allowed(question, roles, bindings) is expected


@given(QUESTIONS, ROLES, SETS_OF_BINDINGS)
def test_without_bindings_or_without_roles_nothing_is_granted(question, roles, bindings) -> None:
    assert not is_allowed(question, roles, [])
    assert not is_allowed(question, {}, bindings)
    principal = question[0]
    super_admin = is_allowed(question, {}, [], {"a"})
    assert super_admin is (principal.name == "a" and principal.kind is not PrincipalKind.ANONYMOUS)


@given(SETS_OF_BINDINGS, SETS_OF_BINDINGS, QUESTIONS, ROLES)
def test_removed_bindings_leave_no_trace(kept, removed, question, roles) -> None:
    removed = [msgspec.structs.replace(each, id=f"gone{number}") for number, each in enumerate(removed)]
    bindings = Bindings([*kept, *removed])
    for binding in removed:
        bindings.remove(binding)
    found = decide(*question, roles=roles, bindings=bindings, super_admins=frozenset())
    assert found.allowed is is_allowed(question, roles, kept)


@given(st.one_of(TOPICS, st.from_regex(r"/[\w-]+/[\w-]+", fullmatch=True), st.text("/ab-é. ", max_size=8)))
def test_access_to_a_topic_is_checked_where_the_topic_is(text) -> None:
    """Access is checked on the name as sent, the topic found by the name as parsed: they must be the same place."""
    places = places_of(topic_resource(text))
    try:
        name = TopicName.parse(text)
    except Rejected:
        return
    assert places[1:] == ((Scope.NAMESPACE, name.namespace), (Scope.TOPIC, str(name)))
