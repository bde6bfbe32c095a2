"""danube_admin.SecurityAdmin: roles and bindings."""

from google.protobuf.message import Message

from pydanube.kernel.errors import Rejected
from pydanube.protocol import danube_admin_pb2 as pb
from pydanube.security.permissions import parse_scope
from pydanube.security.policy_store import PolicyStore
from pydanube.security.rbac import Binding, Role
from pydanube.wire.admin_calls import Method, methods
from pydanube.wire.calls import parse


class SecurityAdminService:
    def __init__(self, policies: PolicyStore) -> None:
        self._policies = policies

    def methods(self) -> dict[str, Method]:
        return methods(
            "danube_admin.SecurityAdmin",
            {
                "CreateRole": self.create_role,
                "GetRole": self.get_role,
                "DeleteRole": self.delete_role,
                "ListRoles": self.list_roles,
                "CreateBinding": self.create_binding,
                "GetBinding": self.get_binding,
                "DeleteBinding": self.delete_binding,
                "ListBindings": self.list_bindings,
                "ListAllBindings": self.list_all_bindings,
            },
        )

    async def create_role(self, body: bytes) -> Message:
        request = parse(pb.CreateRoleRequest, body)
        if not request.HasField("role"):
            raise Rejected("the request has no role: give it a name and permissions")
        role = request.role
        await self._policies.put_role(
            Role(name=role.name, permissions=tuple(role.permissions), system=role.system)
        )
        return pb.CreateRoleResponse(success=True)

    async def get_role(self, body: bytes) -> Message:
        name = parse(pb.GetRoleRequest, body).name
        return pb.GetRoleResponse(role=_shown_role(self._policies.role(name)))

    async def delete_role(self, body: bytes) -> Message:
        await self._policies.delete_role(parse(pb.DeleteRoleRequest, body).name)
        return pb.DeleteRoleResponse(success=True)

    async def list_roles(self, body: bytes) -> Message:
        return pb.ListRolesResponse(roles=[_shown_role(role) for role in self._policies.roles()])

    async def create_binding(self, body: bytes) -> Message:
        request = parse(pb.CreateBindingRequest, body)
        if not request.HasField("binding"):
            raise Rejected("the request has no binding: give it an id, a principal, roles and a scope")
        binding = request.binding
        await self._policies.put_binding(
            Binding(
                id=binding.id,
                principal_type=binding.principal_type,
                principal_name=binding.principal_name,
                role_names=tuple(binding.role_names),
                scope=parse_scope(binding.scope),
                resource_name=binding.resource_name,
            )
        )
        return pb.CreateBindingResponse(success=True)

    async def get_binding(self, body: bytes) -> Message:
        request = parse(pb.GetBindingRequest, body)
        binding = self._policies.binding(request.scope, request.resource_name, request.binding_id)
        return pb.GetBindingResponse(binding=_shown_binding(binding))

    async def delete_binding(self, body: bytes) -> Message:
        request = parse(pb.DeleteBindingRequest, body)
        await self._policies.delete_binding(request.scope, request.resource_name, request.binding_id)
        return pb.DeleteBindingResponse(success=True)

    async def list_bindings(self, body: bytes) -> Message:
        request = parse(pb.ListBindingsRequest, body)
        found = self._policies.bindings_at(request.scope, request.resource_name)
        return pb.ListBindingsResponse(bindings=[_shown_binding(binding) for binding in found])

    async def list_all_bindings(self, body: bytes) -> Message:
        found = self._policies.bindings()
        return pb.ListBindingsResponse(bindings=[_shown_binding(binding) for binding in found])


def _shown_role(role: Role) -> pb.RoleDefinition:
    return pb.RoleDefinition(name=role.name, permissions=role.permissions, system=role.system)


def _shown_binding(binding: Binding) -> pb.BindingDefinition:
    return pb.BindingDefinition(
        id=binding.id,
        principal_type=binding.principal_type,
        principal_name=binding.principal_name,
        role_names=binding.role_names,
        scope=binding.scope,
        resource_name=binding.resource_name,
    )
