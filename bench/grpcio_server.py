"""The two hot Danube calls on grpcio.aio and uvloop: what a Python broker would cost on the usual framework."""

import argparse
import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import uvloop

from pydanube.protocol.danube_pb2 import MessageResponse, MsgID, ReceiveRequest, StreamMessage


async def send_message(message: StreamMessage, _context: Any) -> MessageResponse:
    return MessageResponse(request_id=message.request_id)


async def serve(address: str) -> None:
    prepared = StreamMessage(
        request_id=1,
        msg_id=MsgID(producer_id=1 << 40, topic_name="/default/bench", topic_offset=123456),
        payload=b"x" * 1024,
        publish_time=1700000000000,
        producer_name="bench",
        subscription_name="bench",
    )

    async def receive_messages(_request: ReceiveRequest, _context: Any) -> AsyncIterator[StreamMessage]:
        while True:
            yield prepared

    server = grpc.aio.server()
    publish = grpc.unary_unary_rpc_method_handler(
        send_message, StreamMessage.FromString, MessageResponse.SerializeToString
    )
    deliver = grpc.unary_stream_rpc_method_handler(
        receive_messages, ReceiveRequest.FromString, StreamMessage.SerializeToString
    )
    server.add_generic_rpc_handlers(
        (
            grpc.method_handlers_generic_handler("danube.ProducerService", {"SendMessage": publish}),
            grpc.method_handlers_generic_handler("danube.ConsumerService", {"ReceiveMessages": deliver}),
        )
    )
    server.add_insecure_port(address)
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(arguments.address))
