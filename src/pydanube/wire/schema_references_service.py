"""The calls of pydanube.admin.v1.Admin for schemas that refer to others, which danube_schema has no words for."""

from collections.abc import Iterable

from google.protobuf.message import Message

from pydanube.protocol import pydanube_admin_pb2 as pb
from pydanube.schemas.format import kind_of, mode_of
from pydanube.schemas.registry import SchemaRegistry
from pydanube.schemas.subjects import Reference
from pydanube.wire.admin_calls import Method, methods
from pydanube.wire.calls import parse


class SchemaReferencesService:
    """Served on the client port and on the admin port, as the registry is."""

    def __init__(self, registry: SchemaRegistry) -> None:
        self._registry = registry

    def methods(self) -> dict[str, Method]:
        return methods(
            "pydanube.admin.v1.Admin",
            {
                "RegisterSchemaWithReferences": self.register,
                "CheckSchemaWithReferences": self.check,
                "GetSchemaReferences": self.get,
            },
        )

    async def register(self, body: bytes) -> Message:
        request = parse(pb.RegisterSchemaWithReferencesRequest, body)
        made = await self._registry.register(
            request.subject,
            kind_of(request.schema_type),
            request.schema_definition,
            description=request.description,
            created_by=request.created_by,
            tags=tuple(request.tags),
            references=_references(request.references),
        )
        return pb.RegisterSchemaWithReferencesResponse(
            schema_id=made.schema_id,
            version=made.version,
            is_new_version=made.is_new_version,
            fingerprint=made.fingerprint,
        )

    async def check(self, body: bytes) -> Message:
        request = parse(pb.CheckSchemaWithReferencesRequest, body)
        problems = await self._registry.check(
            request.subject,
            kind_of(request.schema_type),
            request.schema_definition,
            mode=mode_of(request.compatibility_mode) if request.compatibility_mode else None,
            references=_references(request.references),
        )
        return pb.CheckSchemaWithReferencesResponse(errors=[problem.text for problem in problems])

    async def get(self, body: bytes) -> Message:
        request = parse(pb.GetSchemaReferencesRequest, body)
        followed = await self._registry.references(request.schema_id, request.version)
        return pb.GetSchemaReferencesResponse(
            schemas=[
                pb.ReferencedSchema(
                    reference=pb.SchemaReference(
                        name=each.reference.name,
                        subject=each.reference.subject,
                        version=each.reference.version,
                    ),
                    definition=each.definition,
                )
                for each in followed
            ]
        )


def _references(given: Iterable[pb.SchemaReference]) -> list[Reference]:
    return [Reference(name=each.name, subject=each.subject, version=each.version) for each in given]
