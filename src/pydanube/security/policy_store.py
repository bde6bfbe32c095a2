"""Roles and bindings in the metadata store, mirrored in memory so that a decision waits for nothing.

Every broker follows the store by a watch; the one that writes applies its own change at once. Two writers of one key are
told apart by the version of the write: an older change never replaces a newer one. While the store cannot be followed,
nobody but brokers and super admins may do anything: a role taken away in the meantime would not be known.
"""

import asyncio
import logging
from collections.abc import Set
from contextlib import suppress
from typing import Final

import msgspec

from pydanube.kernel.errors import Conflict, DanubeError, ErrorCode, Rejected
from pydanube.kernel.names import NAME_CHARACTERS_MAX, check_name
from pydanube.metadata import Compare, Delete, HistoryLost, MetadataStore, VersionMismatch
from pydanube.security.permissions import Permission, Resource, Scope, parse_scope, place_of
from pydanube.security.principals import Principal
from pydanube.security.rbac import Binding, Bindings, Decision, Role, decide

log = logging.getLogger("pydanube.security")

ROLES: Final = "/auth/roles"
BINDINGS: Final = "/auth/bindings"
PREFIX: Final = "/auth"

ROLES_MAX: Final = 10_000
BINDINGS_MAX: Final = 100_000
ROLES_OF_BINDING_MAX: Final = 64
DECISIONS_REMEMBERED_MAX: Final = 100_000
DELETE_ATTEMPTS_MAX: Final = 10
RETRY_SECONDS_MIN: Final = 0.1
RETRY_SECONDS_MAX: Final = 5.0

_PERMISSIONS: Final = frozenset(Permission)

Record = Role | Binding


class PolicyStore:
    """Who may do what. `start` before asking; `revision` changes whenever any decision may."""

    def __init__(self, metadata: MetadataStore, *, super_admins: Set[str] = frozenset()) -> None:
        self._metadata = metadata
        self._super_admins = frozenset(super_admins)
        self._roles: dict[str, Role] = {}
        self._bindings_by_key: dict[str, Binding] = {}
        self._bindings = Bindings()
        self._versions: dict[str, int] = {}
        """Of the last write applied to a key; of a deleted one until the watch is past it."""
        self._decisions: dict[tuple[Principal, Permission, Resource], Decision] = {}
        self._unreadable: str | None = "the policies have not been read yet"
        self._follower: asyncio.Task[None] | None = None
        self.revision = 0

    async def start(self) -> None:
        """Read everything, then follow changes until `close`."""
        since = await self._read_all()
        self._follower = asyncio.create_task(self._follow(since), name="security policies")

    async def close(self) -> None:
        if self._follower is not None:
            self._follower.cancel()
            with suppress(asyncio.CancelledError):
                await self._follower
            self._follower = None

    def decide(self, principal: Principal, permission: Permission, resource: Resource) -> Decision:
        key = (principal, permission, resource)
        decision = self._decisions.get(key)
        if decision is None:
            decision = self._decide(principal, permission, resource)
            if len(self._decisions) >= DECISIONS_REMEMBERED_MAX:
                self._decisions.clear()
            if len(resource.name) <= NAME_CHARACTERS_MAX:  # names are whatever a caller sends
                self._decisions[key] = decision
        return decision

    def role(self, name: str) -> Role:
        role = self._roles.get(name)
        if role is None:
            raise Rejected(f"there is no role {name[:255]!r}", ErrorCode.ROLE_UNKNOWN)
        return role

    def roles(self) -> list[Role]:
        """All roles by name."""
        return sorted(self._roles.values(), key=lambda role: role.name)

    async def put_role(self, role: Role) -> None:
        """Create the role or put it in the place of the one of that name."""
        _check_part(role.name, what="role name")
        for permission in role.permissions:
            if permission not in _PERMISSIONS:
                raise Rejected(
                    f"role {role.name!r}: there is no permission {permission[:40]!r}, only {', '.join(Permission)}"
                )
        if role.name not in self._roles and len(self._roles) >= ROLES_MAX:
            raise Rejected(f"{ROLES_MAX} roles exist: delete some", ErrorCode.POLICIES_EXHAUSTED)
        once = tuple(dict.fromkeys(role.permissions))
        await self._put(f"{ROLES}/{role.name}", msgspec.structs.replace(role, permissions=once))

    async def delete_role(self, name: str) -> None:
        """Forget a role; bindings that name it stay, and grant nothing by it."""
        key = f"{ROLES}/{_check_part(name, what='role name')}"
        for _ in range(DELETE_ATTEMPTS_MAX):
            entry = await self._metadata.get(key)
            if entry is None:
                raise Rejected(f"there is no role {name!r}", ErrorCode.ROLE_UNKNOWN)
            role = _decode(key, entry.value)
            if isinstance(role, Role) and role.system:
                raise Rejected(f"{name!r} is a system role: it cannot be deleted", ErrorCode.ROLE_PROTECTED)
            with suppress(VersionMismatch):
                await self._delete(key, entry.version)
                return
        raise Conflict(f"role {name!r} is being changed by others: look at it, then try again")

    def binding(self, scope: str, resource_name: str, binding_id: str) -> Binding:
        binding = self._bindings_by_key.get(_binding_key(scope, resource_name, binding_id))
        if binding is None:
            raise _no_binding(scope, resource_name, binding_id)
        return binding

    def bindings(self) -> list[Binding]:
        """All bindings by scope, resource and id."""
        return [self._bindings_by_key[key] for key in sorted(self._bindings_by_key)]

    def bindings_at(self, scope: str, resource_name: str) -> list[Binding]:
        """The bindings of exactly this scope and resource, by id."""
        place = place_of(parse_scope(scope), resource_name)
        return [binding for binding in self.bindings() if binding.place == place]

    async def put_binding(self, binding: Binding) -> None:
        """Create the binding or put it in the place of the one of that scope, resource and id."""
        key = _binding_key(binding.scope, binding.resource_name, binding.id)
        check_name(binding.principal_type, what="principal type")
        check_name(binding.principal_name, what="principal name")
        if not 1 <= len(binding.role_names) <= ROLES_OF_BINDING_MAX:
            raise Rejected(
                f"binding {binding.id!r} names {len(binding.role_names)} roles: expected 1 to {ROLES_OF_BINDING_MAX}"
            )
        for name in binding.role_names:
            _check_part(name, what="role name")
        if key not in self._bindings_by_key and len(self._bindings_by_key) >= BINDINGS_MAX:
            raise Rejected(f"{BINDINGS_MAX} bindings exist: delete some", ErrorCode.POLICIES_EXHAUSTED)
        name = binding.place.name if binding.scope is not Scope.TOPIC else binding.resource_name
        await self._put(key, msgspec.structs.replace(binding, resource_name=name))

    async def delete_binding(self, scope: str, resource_name: str, binding_id: str) -> None:
        key = _binding_key(scope, resource_name, binding_id)
        for _ in range(DELETE_ATTEMPTS_MAX):
            entry = await self._metadata.get(key)
            if entry is None:
                raise _no_binding(scope, resource_name, binding_id)
            with suppress(VersionMismatch):
                await self._delete(key, entry.version)
                return
        raise Conflict(f"binding {binding_id!r} is being changed by others: look at it, then try again")

    def _decide(self, principal: Principal, permission: Permission, resource: Resource) -> Decision:
        if self._unreadable is None:
            return decide(
                principal,
                permission,
                resource,
                roles=self._roles,
                bindings=self._bindings,
                super_admins=self._super_admins,
            )
        decision = decide(
            principal, permission, resource, roles={}, bindings=Bindings(), super_admins=self._super_admins
        )
        return decision if decision.allowed else Decision(False, self._unreadable)

    async def _put(self, key: str, record: Record) -> None:
        version = await self._metadata.put(key, msgspec.json.encode(record))
        self._apply(key, record, version)

    async def _delete(self, key: str, expected_version: int) -> None:
        version = await self._metadata.transact([Compare(key, expected_version)], [Delete(key)])
        self._apply(key, None, version)

    async def _follow(self, since: int) -> None:
        try:
            while True:
                try:
                    async for change in self._metadata.watch(PREFIX, since_version=since):
                        record = None if change.value is None else _decode(change.key, change.value)
                        self._apply(change.key, record, change.version)
                        if change.value is None and self._versions.get(change.key) == change.version:
                            # Nothing older can come any more: no need to remember when it was deleted.
                            del self._versions[change.key]
                except HistoryLost as error:
                    log.info("the policies are read again: %s", error.text)
                except DanubeError as error:
                    self._set_unreadable(f"the policies cannot be followed: {error.text}")
                since = await self._read_again()
        except asyncio.CancelledError:
            self._unreadable = "the policies are no longer followed: the broker is stopping"
            self._changed()
            raise
        except BaseException:
            self._set_unreadable("the policies are no longer followed, by a bug")
            raise

    async def _read_again(self) -> int:
        """Read everything as soon as that is possible."""
        seconds = RETRY_SECONDS_MIN
        while True:
            try:
                return await self._read_all()
            except DanubeError as error:
                self._set_unreadable(f"the policies cannot be read: {error.text}")
            await asyncio.sleep(seconds)
            seconds = min(seconds * 2, RETRY_SECONDS_MAX)

    async def _read_all(self) -> int:
        """Make memory what the store holds; return the revision to watch from."""
        since = await self._metadata.revision()
        entries = {entry.key: entry for entry in await self._metadata.list(PREFIX)}
        for key in self._versions.keys() - entries.keys():
            # A write of our own may be younger than the listing: it stays.
            if self._versions[key] <= since:
                self._forget(key)
                del self._versions[key]
        for entry in entries.values():
            self._apply(entry.key, _decode(entry.key, entry.value), entry.version)
        if self._unreadable is not None:
            self._unreadable = None
            self._changed()
        return since

    def _apply(self, key: str, record: Record | None, version: int) -> None:
        if version <= self._versions.get(key, 0):
            return
        self._versions[key] = version
        self._forget(key)
        if isinstance(record, Role):
            self._roles[record.name] = record
        elif isinstance(record, Binding):
            self._bindings_by_key[key] = record
            self._bindings.add(record)
        self._changed()

    def _forget(self, key: str) -> None:
        """What memory has under the key grants nothing any more."""
        self._roles.pop(key.removeprefix(ROLES + "/"), None)
        binding = self._bindings_by_key.pop(key, None)
        if binding is not None:
            self._bindings.remove(binding)
        self._changed()

    def _set_unreadable(self, why: str) -> None:
        if self._unreadable is None:
            log.error("%s; only brokers and super admins are served", why)
        self._unreadable = why
        self._changed()

    def _changed(self) -> None:
        self._decisions.clear()
        self.revision += 1


def _decode(key: str, value: bytes) -> Record | None:
    """The record, or None for one that cannot be read: it grants nothing."""
    try:
        record: Record
        if key.startswith(ROLES + "/"):
            record = msgspec.json.decode(value, type=Role)
            right = key == f"{ROLES}/{record.name}"
        else:
            record = msgspec.json.decode(value, type=Binding)
            right = key == _binding_key(record.scope, record.resource_name, record.id)
        if right:
            return record
        log.error("%s holds a policy of another name: it grants nothing, write it again", key)
    except (msgspec.DecodeError, UnicodeDecodeError, DanubeError) as error:
        log.error("%s holds no role or binding, so it grants nothing: %s", key, error)
    return None


def _binding_key(scope: str, resource_name: str, binding_id: str) -> str:
    known = parse_scope(scope)
    _check_part(binding_id, what="binding id")
    name = place_of(known, resource_name).name.removeprefix("/")
    if known is Scope.CLUSTER:
        return f"{BINDINGS}/{known}/{binding_id}"
    check_name(name, what=f"{known} of a binding")
    if "" in name.split("/") or (known is Scope.NAMESPACE and "/" in name):
        raise Rejected(
            f"invalid {known} {name!r} of binding {binding_id!r}: expected /namespace/topic or a namespace"
        )
    return f"{BINDINGS}/{known}/{name}/{binding_id}"


def _check_part(text: str, *, what: str) -> str:
    """A name that is the last part of a metadata key."""
    if "/" in check_name(text, what=what):
        raise Rejected(f"invalid {what} {text!r}: a slash is not allowed")
    return text


def _no_binding(scope: str, resource_name: str, binding_id: str) -> Rejected:
    return Rejected(
        f"there is no binding {binding_id[:255]!r} of scope {scope} on {resource_name[:255]!r}",
        ErrorCode.BINDING_UNKNOWN,
    )
