import asyncio
import logging
from collections.abc import AsyncIterator, Callable

import msgspec
import pytest

from pydanube.kernel.errors import DanubeError, ErrorCode, Rejected, Status, Unavailable
from pydanube.metadata import Change, Entry, MemoryStore
from pydanube.metadata.history import History
from pydanube.security.permissions import CLUSTER, Permission, Scope, namespace_resource, topic_resource
from pydanube.security.policy_store import PolicyStore
from pydanube.security.principals import Principal, PrincipalKind
from pydanube.security.rbac import Binding, Role

ALICE = Principal(PrincipalKind.USER, "alice")
ROOT = Principal(PrincipalKind.USER, "root")
TOPIC = topic_resource("/shop/orders")
WRITER = Role(name="writer", permissions=("Produce", "Lookup"))


def bound(scope: str = "topic", name: str = "/shop/orders", binding_id: str = "b", **changed) -> Binding:
    fields = {"principal_type": "user", "principal_name": "alice", "role_names": ("writer",)} | changed
    return Binding(id=binding_id, scope=Scope(scope), resource_name=name, **fields)


def may(policies: PolicyStore, permission=Permission.PRODUCE, resource=TOPIC, principal=ALICE) -> bool:
    return policies.decide(principal, permission, resource).allowed


async def until(true: Callable[[], bool]) -> None:
    """Let the watch run; it needs no time, only turns of the loop."""
    for _ in range(1000):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never came true")


def refused(caught: pytest.ExceptionInfo[Rejected], code: ErrorCode, status: Status) -> None:
    assert (caught.value.code, caught.value.status) == (code, status)


async def test_a_change_counts_at_once_where_it_is_made(policies: PolicyStore) -> None:
    assert not may(policies)
    await policies.put_role(WRITER)
    assert not may(policies)
    await policies.put_binding(bound())
    assert may(policies)
    assert not may(policies, Permission.CONSUME)
    await policies.put_role(Role(name="writer", permissions=("Consume",)))
    assert not may(policies)
    assert may(policies, Permission.CONSUME)
    await policies.delete_role("writer")
    assert not may(policies, Permission.CONSUME)
    await policies.put_role(WRITER)
    assert may(policies)
    await policies.delete_binding("topic", "/shop/orders", "b")
    assert not may(policies)


async def test_other_brokers_follow(policies: PolicyStore, metadata: MemoryStore) -> None:
    other = PolicyStore(metadata)
    await other.start()
    await policies.put_role(WRITER)
    await policies.put_binding(bound())
    await until(lambda: may(other))
    await policies.put_binding(bound(principal_name="bob"))
    await until(lambda: not may(other))
    assert may(other, principal=Principal(PrincipalKind.USER, "bob"))
    await policies.delete_binding("topic", "/shop/orders", "b")
    await until(lambda: not may(other, principal=Principal(PrincipalKind.USER, "bob")))
    await policies.delete_role("writer")
    await until(lambda: other.roles() == [])
    await other.close()


async def test_policies_are_there_after_a_restart(policies: PolicyStore, metadata: MemoryStore) -> None:
    await policies.put_role(WRITER)
    await policies.put_binding(bound())
    await policies.close()
    later = PolicyStore(metadata)
    assert not may(later)
    await later.start()
    assert may(later)
    assert (later.roles(), later.bindings()) == ([WRITER], [bound()])
    await later.close()


async def test_keys_are_those_of_the_reference(policies: PolicyStore, metadata: MemoryStore) -> None:
    await policies.put_role(WRITER)
    await policies.put_binding(bound("cluster", "ignored"))
    await policies.put_binding(bound("namespace", "/shop"))
    await policies.put_binding(bound())
    assert [entry.key for entry in await metadata.list("/auth")] == [
        "/auth/bindings/cluster/b",
        "/auth/bindings/namespace/shop/b",
        "/auth/bindings/topic/shop/orders/b",
        "/auth/roles/writer",
    ]
    entry = await metadata.get("/auth/bindings/namespace/shop/b")
    assert entry is not None
    assert msgspec.json.decode(entry.value) == {
        "id": "b",
        "principal_type": "user",
        "principal_name": "alice",
        "role_names": ["writer"],
        "scope": "namespace",
        "resource_name": "shop",
    }


async def test_bindings_are_found_by_scope_resource_and_id(policies: PolicyStore) -> None:
    made = [
        bound("cluster", ""),
        bound("namespace", "shop"),
        bound("namespace", "shop2"),
        bound("topic", "/shop/orders"),
        bound("topic", "/shop/orders", "c"),
        bound("topic", "/shop/orders2"),
    ]
    for binding in made:
        await policies.put_binding(binding)
    assert policies.bindings() == made
    assert policies.binding("namespace", "/shop", "b") == made[1]
    assert policies.bindings_at("namespace", "/shop") == [made[1]]
    assert policies.bindings_at("topic", "/shop/orders") == made[3:5]
    assert policies.bindings_at("cluster", "") == policies.bindings_at("cluster", "whatever") == made[:1]
    assert policies.bindings_at("topic", "/shop") == []


async def test_a_namespace_may_be_written_with_a_slash(policies: PolicyStore) -> None:
    await policies.put_role(WRITER)
    await policies.put_binding(bound("namespace", "/shop"))
    assert may(policies)
    assert may(policies, resource=namespace_resource("/shop"))
    assert not may(policies, resource=CLUSTER)
    await policies.delete_binding("namespace", "shop", "b")
    assert not may(policies)


@pytest.mark.parametrize("role", [Role(name="", permissions=()), Role(name="a/b", permissions=())])
async def test_role_names_are_checked(policies: PolicyStore, role: Role) -> None:
    with pytest.raises(Rejected) as caught:
        await policies.put_role(role)
    refused(caught, ErrorCode.ARGUMENT_INVALID, Status.INVALID_ARGUMENT)


@pytest.mark.parametrize("permission", ["", "produce", "Admin", "Produce "])
async def test_unknown_permissions_are_refused(policies: PolicyStore, permission: str) -> None:
    with pytest.raises(Rejected, match="ManageCluster") as caught:
        await policies.put_role(Role(name="r", permissions=("Produce", permission)))
    refused(caught, ErrorCode.ARGUMENT_INVALID, Status.INVALID_ARGUMENT)
    assert policies.roles() == []


@pytest.mark.parametrize(
    "binding",
    [
        bound(binding_id=""),
        bound(binding_id="a/b"),
        bound(principal_type=""),
        bound(principal_name=""),
        bound(role_names=()),
        bound(role_names=("",)),
        bound(role_names=("r",) * 65),
        bound("namespace", ""),
        bound("namespace", "/"),
        bound("namespace", "a/b"),
        bound("topic", ""),
        bound("topic", "//a/b"),
        bound("topic", "/a/b/"),
        bound("topic", "/a\n/b"),
    ],
)
async def test_bindings_are_checked(policies: PolicyStore, binding: Binding) -> None:
    with pytest.raises(Rejected) as caught:
        await policies.put_binding(binding)
    refused(caught, ErrorCode.ARGUMENT_INVALID, Status.INVALID_ARGUMENT)
    assert policies.bindings() == []


@pytest.mark.parametrize("scope", ["", "Topic", "broker", "CLUSTER"])
async def test_scopes_are_checked(policies: PolicyStore, scope: str) -> None:
    for call in (
        lambda: policies.binding(scope, "", "b"),
        lambda: policies.bindings_at(scope, ""),
    ):
        with pytest.raises(Rejected, match="scope") as caught:
            call()
        refused(caught, ErrorCode.ARGUMENT_INVALID, Status.INVALID_ARGUMENT)
    with pytest.raises(Rejected, match="scope"):
        await policies.delete_binding(scope, "", "b")


async def test_what_is_not_there(policies: PolicyStore) -> None:
    with pytest.raises(Rejected) as caught:
        policies.role("r")
    refused(caught, ErrorCode.ROLE_UNKNOWN, Status.NOT_FOUND)
    with pytest.raises(Rejected) as caught:
        await policies.delete_role("r")
    refused(caught, ErrorCode.ROLE_UNKNOWN, Status.NOT_FOUND)
    with pytest.raises(Rejected) as caught:
        policies.binding("topic", "/a/b", "b")
    refused(caught, ErrorCode.BINDING_UNKNOWN, Status.NOT_FOUND)
    with pytest.raises(Rejected) as caught:
        await policies.delete_binding("topic", "/a/b", "b")
    refused(caught, ErrorCode.BINDING_UNKNOWN, Status.NOT_FOUND)


async def test_a_permission_counts_once(policies: PolicyStore) -> None:
    await policies.put_role(Role(name="r", permissions=("Produce", "Lookup", "Produce")))
    assert policies.role("r").permissions == ("Produce", "Lookup")


async def test_a_system_role_stays(policies: PolicyStore) -> None:
    await policies.put_role(Role(name="base", permissions=("Lookup",), system=True))
    with pytest.raises(Rejected) as caught:
        await policies.delete_role("base")
    refused(caught, ErrorCode.ROLE_PROTECTED, Status.FAILED_PRECONDITION)
    assert policies.role("base").system


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("/auth/roles/writer", b"{"),
        ("/auth/roles/writer", b'{"name": "other", "permissions": ["Produce"]}'),
        ("/auth/roles/writer", b'{"name": "writer", "permissions": "Produce"}'),
        ("/auth/bindings/topic/shop/orders/b", b"\xff"),
        # A record under a key of another place would be found by the wrong deletion.
        ("/auth/bindings/topic/shop/orders/b", msgspec.json.encode(bound("cluster", ""))),
        ("/auth/bindings/topic/shop/orders/b", b"{}"),
    ],
)
async def test_a_record_that_cannot_be_read_grants_nothing(
    policies: PolicyStore, metadata: MemoryStore, caplog: pytest.LogCaptureFixture, key: str, value: bytes
) -> None:
    await policies.put_role(WRITER)
    await policies.put_binding(bound())
    assert may(policies)
    with caplog.at_level(logging.ERROR):
        await metadata.put(key, value)
        await until(lambda: not may(policies))
    assert key in caplog.text
    # It can be replaced, or deleted and made again.
    await (policies.put_role(WRITER) if "roles" in key else policies.put_binding(bound()))
    assert may(policies)


async def test_a_permission_of_a_later_version_grants_nothing_here(
    policies: PolicyStore, metadata: MemoryStore
) -> None:
    await policies.put_binding(bound())
    await metadata.put(
        "/auth/roles/writer", b'{"name":"writer","permissions":["Teleport","Produce"],"later":1}'
    )
    await until(lambda: may(policies))
    assert policies.role("writer").permissions == ("Teleport", "Produce")


async def test_every_change_is_another_revision(policies: PolicyStore) -> None:
    seen = [policies.revision]
    for step in (
        lambda: policies.put_role(WRITER),
        lambda: policies.put_binding(bound()),
        lambda: policies.delete_binding("topic", "/shop/orders", "b"),
        lambda: policies.delete_role("writer"),
    ):
        await step()
        seen.append(policies.revision)
    assert seen == sorted(set(seen))


class SlowHistory(MemoryStore):
    """Holds back what its watches tell, until let go."""

    def __init__(self, clock, **options) -> None:
        super().__init__(clock, **options)
        self.flowing = asyncio.Event()
        self.flowing.set()

    def watch(self, prefix: str, *, since_version: int) -> AsyncIterator[Change]:
        return self._held(super().watch(prefix, since_version=since_version))

    async def _held(self, changes: AsyncIterator[Change]) -> AsyncIterator[Change]:
        async for change in changes:
            await self.flowing.wait()
            yield change


async def test_old_news_does_not_undo_what_was_done_since(clock) -> None:
    store = SlowHistory(clock)
    policies = PolicyStore(store)
    await policies.start()
    store.flowing.clear()
    await policies.put_role(WRITER)
    await policies.put_binding(bound())
    await policies.delete_binding("topic", "/shop/orders", "b")
    await policies.put_role(Role(name="writer", permissions=("Consume",)))
    before = policies.revision
    store.flowing.set()
    # The watch now tells of the binding that is deleted already.
    for _ in range(100):
        await asyncio.sleep(0)
        assert not may(policies)
        assert policies.role("writer").permissions == ("Consume",)
    assert policies.revision == before
    assert policies._versions.keys() == {"/auth/roles/writer"}
    await policies.close()
    await store.close()


async def test_what_the_watch_has_missed_is_read_again(clock, caplog: pytest.LogCaptureFixture) -> None:
    store = SlowHistory(clock, history=History(0, changes_max=4))
    policies = PolicyStore(store)
    writer = PolicyStore(store)
    await policies.start()
    await writer.put_role(WRITER)
    await writer.put_binding(bound())
    await writer.put_binding(bound(binding_id="gone", principal_name="bob"))
    await until(lambda: may(policies, principal=Principal(PrincipalKind.USER, "bob")))
    store.flowing.clear()
    for number in range(20):
        await store.put(
            f"/auth/roles/r{number}", msgspec.json.encode(Role(name=f"r{number}", permissions=()))
        )
    await writer.delete_binding("topic", "/shop/orders", "gone")
    store.flowing.set()
    await until(lambda: len(policies.roles()) == 21)
    await until(lambda: not may(policies, principal=Principal(PrincipalKind.USER, "bob")))
    assert may(policies)
    await writer.delete_binding("topic", "/shop/orders", "b")
    await until(lambda: not may(policies))
    await policies.close()
    await store.close()


class FailingStore(MemoryStore):
    """Fails reads and watches while told to."""

    failing = False

    def watch(self, prefix: str, *, since_version: int) -> AsyncIterator[Change]:
        return self._failing(super().watch(prefix, since_version=since_version))

    async def _failing(self, changes: AsyncIterator[Change]) -> AsyncIterator[Change]:
        async for change in changes:
            if self.failing:
                raise Unavailable("no leader", ErrorCode.STORE_FAILED)
            yield change

    async def list(self, prefix: str) -> list[Entry]:
        if self.failing:
            raise Unavailable("no leader", ErrorCode.STORE_FAILED)
        return await super().list(prefix)


async def test_a_store_that_cannot_be_read_denies(
    clock, monkeypatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pydanube.security.policy_store.RETRY_SECONDS_MIN", 0)
    store = FailingStore(clock)
    policies = PolicyStore(store, super_admins={"root"})
    await policies.start()
    await policies.put_role(WRITER)
    await policies.put_binding(bound())
    assert may(policies)
    store.failing = True
    await store.put("/auth/roles/other", msgspec.json.encode(Role(name="other", permissions=())))
    await until(lambda: not may(policies))
    assert "no leader" in policies.decide(ALICE, Permission.PRODUCE, TOPIC).why
    assert may(policies, principal=ROOT)
    assert may(policies, principal=Principal(PrincipalKind.BROKER_INTERNAL, "broker/1"))
    assert "only brokers and super admins" in caplog.text
    store.failing = False
    await until(lambda: may(policies))
    assert policies.role("other")
    await policies.close()
    assert not may(policies)
    await store.close()


async def test_a_broker_does_not_start_on_policies_it_cannot_read(clock) -> None:
    store = FailingStore(clock)
    store.failing = True
    policies = PolicyStore(store)
    with pytest.raises(DanubeError):
        await policies.start()
    assert not may(policies)
    await policies.close()
    await store.close()


async def test_two_at_once_delete_a_thing_once(policies: PolicyStore, metadata: MemoryStore) -> None:
    await policies.put_role(WRITER)
    outcomes = await asyncio.gather(
        *(policies.delete_role("writer") for _ in range(3)), return_exceptions=True
    )
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["NoneType", "Rejected", "Rejected"]


async def test_remembered_decisions_are_bounded(policies: PolicyStore, monkeypatch) -> None:
    monkeypatch.setattr("pydanube.security.policy_store.DECISIONS_REMEMBERED_MAX", 10)
    for number in range(25):
        may(policies, resource=topic_resource(f"/n/{number}"))
        assert len(policies._decisions) <= 10
    policies._decisions.clear()
    assert not may(policies, resource=topic_resource("x" * 1_000_000))
    assert not policies._decisions


async def test_the_number_of_policies_is_bounded(policies: PolicyStore, monkeypatch) -> None:
    monkeypatch.setattr("pydanube.security.policy_store.ROLES_MAX", 1)
    monkeypatch.setattr("pydanube.security.policy_store.BINDINGS_MAX", 1)
    await policies.put_role(WRITER)
    await policies.put_role(WRITER)
    await policies.put_binding(bound())
    await policies.put_binding(bound())
    for extra in (
        lambda: policies.put_role(Role(name="second", permissions=())),
        lambda: policies.put_binding(bound(binding_id="second")),
    ):
        with pytest.raises(Rejected) as caught:
            await extra()
        refused(caught, ErrorCode.POLICIES_EXHAUSTED, Status.RESOURCE_EXHAUSTED)
