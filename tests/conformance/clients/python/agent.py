"""Drives the published Python client by JSON lines; the protocol is in ../README.md."""

import argparse
import asyncio
import base64
import itertools
import json
import sys
from dataclasses import dataclass, field
from typing import Any

import grpc
from danube import (
    Consumer,
    ConsumerOptions,
    DanubeClient,
    DanubeClientBuilder,
    DispatchStrategy,
    Producer,
    ProducerOptions,
    SubType,
)
from danube.schema import CompatibilityMode, SchemaType

LINE_BYTES_MAX = 32 << 20
SUBSCRIPTION_TYPES = {
    "Exclusive": SubType.EXCLUSIVE,
    "Shared": SubType.SHARED,
    "Failover": SubType.FAILOVER,
    "KeyShared": SubType.KEY_SHARED,
}


@dataclass
class Receiver:
    """A consumer with the messages it has handed out, by tag, so that a later ack can name one."""

    consumer: Consumer
    messages: dict[int, Any] = field(default_factory=dict)
    tags: itertools.count = field(default_factory=itertools.count)
    task: asyncio.Task | None = None


class Agent:
    def __init__(self, client: DanubeClient) -> None:
        self.client = client
        self.producers: dict[str, Producer] = {}
        self.receivers: dict[str, Receiver] = {}

    async def perform(self, command: dict[str, Any]) -> None:
        try:
            outcome = await getattr(self, "do_" + command["do"])(command)
        except Exception as error:
            emit({"id": command["id"], "error": describe(error)})
        else:
            emit({"id": command["id"], "ok": outcome or {}})

    async def do_producer(self, command: dict[str, Any]) -> None:
        strategy = DispatchStrategy.RELIABLE if command["reliable"] else DispatchStrategy.NON_RELIABLE
        builder = self.client.new_producer().with_topic(command["topic"]).with_name(command["name"])
        builder = builder.with_dispatch_strategy(strategy).with_partitions(command["partitions"])
        if schema := command.get("schema"):
            match schema:
                case {"subject": subject, "version": version}:
                    builder = builder.with_schema_version(subject, version)
                case {"subject": subject, "min_version": version}:
                    builder = builder.with_schema_min_version(subject, version)
                case {"subject": subject}:
                    builder = builder.with_schema_subject(subject)
        producer = builder.with_options(ProducerOptions(max_retries=command["retries"])).build()
        await producer.create()
        self.producers[command["label"]] = producer

    async def do_register_schema(self, command: dict[str, Any]) -> dict[str, Any]:
        builder = self.client.schema().register_schema(command["subject"])
        builder = builder.with_type(SchemaType.parse(command["type"]))
        builder = builder.with_schema_data(command["definition"].encode())
        return {"schema_id": await builder.execute()}

    async def do_get_schema(self, command: dict[str, Any]) -> dict[str, Any]:
        schemas = self.client.schema()
        if "subject" in command:
            info = await schemas.get_latest_schema(command["subject"])
        else:
            info = await schemas.get_schema_version(command["schema_id"], command["version"])
        return vars(info) | {"schema_definition": info.schema_definition_as_string()}

    async def do_schema_versions(self, command: dict[str, Any]) -> dict[str, Any]:
        return {"versions": await self.client.schema().list_versions(command["subject"])}

    async def do_check_schema(self, command: dict[str, Any]) -> dict[str, Any]:
        mode = CompatibilityMode.parse(command["mode"]) if command["mode"] else None
        is_compatible, errors = await self.client.schema().check_compatibility(
            command["subject"], command["definition"].encode(), SchemaType.parse(command["type"]), mode
        )
        return {"is_compatible": is_compatible, "errors": errors}

    async def do_set_schema_mode(self, command: dict[str, Any]) -> dict[str, Any]:
        mode = CompatibilityMode.parse(command["mode"])
        success, message = await self.client.schema().set_compatibility_mode(command["subject"], mode)
        return {"success": success, "message": message}

    async def do_delete_schema(self, command: dict[str, Any]) -> dict[str, Any]:
        success, message = await self.client.schema().delete_schema_version(
            command["subject"], command["version"]
        )
        return {"success": success, "message": message}

    async def do_configure_topic(self, command: dict[str, Any]) -> dict[str, Any]:
        success, message = await self.client.schema().configure_topic_schema(
            command["topic"], command["subject"], command["policy"], command["payloads"]
        )
        return {"success": success, "message": message}

    async def do_set_topic_policy(self, command: dict[str, Any]) -> dict[str, Any]:
        success, message = await self.client.schema().update_topic_validation_policy(
            command["topic"], command["policy"], command["payloads"]
        )
        return {"success": success, "message": message}

    async def do_topic_schema(self, command: dict[str, Any]) -> dict[str, Any]:
        config = await self.client.schema().get_topic_schema_config(command["topic"])
        return {
            "subject": config.schema_subject,
            "policy": config.validation_policy,
            "payloads": config.enable_payload_validation,
            "schema_id": config.schema_id,
        }

    async def do_send(self, command: dict[str, Any]) -> None:
        producer = self.producers[command["label"]]
        for message in command["messages"]:
            payload = base64.b64decode(message["payload"])
            if message["key"] is None:
                await producer.send(payload, message["attributes"])
            else:
                await producer.send_with_key(payload, message["attributes"], message["key"])

    async def do_close_producer(self, command: dict[str, Any]) -> None:
        await self.producers.pop(command["label"]).close()

    async def do_consumer(self, command: dict[str, Any]) -> None:
        builder = self.client.new_consumer().with_topic(command["topic"]).with_consumer_name(command["name"])
        builder = builder.with_subscription(command["subscription"])
        builder = builder.with_subscription_type(SUBSCRIPTION_TYPES[command["type"]])
        builder = builder.with_key_filters(command["key_filters"])
        consumer = builder.with_options(ConsumerOptions(max_retries=command["retries"])).build()
        await consumer.subscribe()
        self.receivers[command["label"]] = Receiver(consumer)

    async def do_receive(self, command: dict[str, Any]) -> None:
        receiver = self.receivers[command["label"]]
        queue = await receiver.consumer.receive()
        receiver.task = asyncio.create_task(forward(command["label"], receiver, queue, command["auto_ack"]))

    async def do_ack(self, command: dict[str, Any]) -> None:
        receiver = self.receivers[command["label"]]
        await receiver.consumer.ack(receiver.messages[command["tag"]])

    async def do_nack(self, command: dict[str, Any]) -> None:
        receiver = self.receivers[command["label"]]
        message = receiver.messages[command["tag"]]
        await receiver.consumer.nack(message, command["delay_ms"], command["reason"])

    async def do_close_consumer(self, command: dict[str, Any]) -> None:
        receiver = self.receivers.pop(command["label"])
        await receiver.consumer.close()
        if receiver.task is not None:
            receiver.task.cancel()


async def forward(label: str, receiver: Receiver, queue: asyncio.Queue, auto_ack: bool) -> None:
    while True:
        message = await queue.get()
        tag = next(receiver.tags)
        if auto_ack:
            try:
                await receiver.consumer.ack(message)
            except Exception as error:
                emit({"ack_failed": {"consumer": label, "error": describe(error)}})
        else:
            receiver.messages[tag] = message
        emit({"message": event_of(label, tag, message)})


def event_of(label: str, tag: int, message: Any) -> dict[str, Any]:
    return {
        "consumer": label,
        "tag": tag,
        "topic": message.msg_id.topic_name,
        "offset": message.msg_id.topic_offset,
        "producer_id": message.msg_id.producer_id,
        "producer_name": message.producer_name,
        "publish_time": message.publish_time,
        "payload": base64.b64encode(message.payload).decode(),
        "attributes": dict(message.attributes),
        "key": message.routing_key if message.HasField("routing_key") else None,
        "schema_id": message.schema_id if message.HasField("schema_id") else None,
        "schema_version": message.schema_version if message.HasField("schema_version") else None,
    }


def describe(error: BaseException) -> dict[str, str]:
    """The gRPC status behind an error, also one the client has wrapped in its own type."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, grpc.aio.AioRpcError):
        cause = cause.__cause__
    return {"code": cause.code().name if cause else "", "text": str(error) or repr(error)}


def emit(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--broker-url", required=True)
    client = await DanubeClientBuilder().service_url(parser.parse_args().broker_url).build()
    agent = Agent(client)
    stdin = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stdin), sys.stdin)
    under_way: set[asyncio.Task] = set()
    while line := await stdin.readline():
        task = asyncio.create_task(agent.perform(json.loads(line)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)


if __name__ == "__main__":
    asyncio.run(main())
