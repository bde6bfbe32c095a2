"""Calls of the schema registry's API, on either port."""

from typing import Any

from broker_harness.wire_client import WireClient
from pydanube.protocol import schema_registry_pb2 as pb


async def ask(client: WireClient, method: str, **fields: Any) -> Any:
    """One call of the registry by the name of its method."""
    request = getattr(pb, f"{method}Request")(**fields)
    answer = await client.call_raw(f"/danube_schema.SchemaRegistry/{method}", request.SerializeToString())
    kind = "GetSchema" if method == "GetLatestSchema" else method
    return getattr(pb, f"{kind}Response").FromString(answer)


async def register(
    client: WireClient, subject: str, definition: bytes = b"", schema_type: str = "string", **fields: Any
) -> Any:
    return await ask(
        client,
        "RegisterSchema",
        subject=subject,
        schema_type=schema_type,
        schema_definition=definition,
        **fields,
    )


async def configure(
    client: WireClient, topic: str, subject: str, policy: str = "enforce", *, payloads: bool = True
) -> Any:
    return await ask(
        client,
        "ConfigureTopicSchema",
        topic_name=topic,
        schema_subject=subject,
        validation_policy=policy,
        enable_payload_validation=payloads,
    )
