"""Our client against a scripted broker: what it does when told to go elsewhere, to wait, or to start again."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc
import pytest

from pydanube.client.grpc import CallFailed, Client, Consumer, Producer, Retries
from pydanube.kernel.errors import Status
from pydanube.protocol import danube_pb2 as pb

TOPIC = "/default/t"

_REQUESTS = {
    "CreateProducer": pb.ProducerRequest,
    "SendMessage": pb.StreamMessage,
    "Subscribe": pb.ConsumerRequest,
    "ReceiveMessages": pb.ReceiveRequest,
    "Ack": pb.AckRequest,
    "Nack": pb.NackRequest,
    "TopicLookup": pb.TopicLookupRequest,
    "TopicPartitions": pb.TopicLookupRequest,
    "HealthCheck": pb.HealthCheckRequest,
}


class Refused(Exception):
    def __init__(self, status: Status) -> None:
        self.status = status


class ScriptedBroker(grpc.GenericRpcHandler):
    """Answers as a broker would, unless the script has an answer for the next call of a method."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.headers: dict[str, list[str | None]] = {}
        self.script: dict[str, list[Any]] = {}
        self.called: dict[str, asyncio.Event] = {name: asyncio.Event() for name in _REQUESTS}
        self.streams: list[list[pb.StreamMessage]] = []
        self.port = 0
        self._next_id = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def count(self, method: str) -> int:
        return sum(name == method for name, _ in self.calls)

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        method = details.method.rpartition("/")[2]
        header = dict(details.invocation_metadata).get("x-danube-broker-url")
        self.headers.setdefault(method, []).append(header if isinstance(header, str) else None)
        make: Callable[..., Any] = (
            grpc.unary_stream_rpc_method_handler
            if method == "ReceiveMessages"
            else grpc.unary_unary_rpc_method_handler
        )
        behaviour = self._stream if method == "ReceiveMessages" else self._unary(method)
        return make(
            behaviour,
            request_deserializer=_REQUESTS[method].FromString,
            response_serializer=lambda response: response.SerializeToString(),
        )

    def _unary(self, method: str) -> Callable[..., Any]:
        async def answer(request: Any, context: grpc.aio.ServicerContext) -> Any:
            self.calls.append((method, request))
            self.called[method].set()
            scripted = self.script.get(method)
            planned = scripted.pop(0) if scripted else None
            if isinstance(planned, Refused):
                await context.abort(grpc.StatusCode[planned.status.name], "as scripted")
            return planned or self._usual(method, request)

        return answer

    async def _stream(
        self, request: pb.ReceiveRequest, context: grpc.aio.ServicerContext
    ) -> AsyncIterator[Any]:
        self.calls.append(("ReceiveMessages", request))
        self.called["ReceiveMessages"].set()
        scripted = self.script.get("ReceiveMessages")
        if scripted:
            await context.abort(grpc.StatusCode[scripted.pop(0).status.name], "as scripted")
        if self.streams:
            for message in self.streams.pop(0):
                yield message
            return
        await asyncio.Event().wait()  # an idle stream stays open until the client leaves

    def _usual(self, method: str, request: Any) -> Any:
        self._next_id += 1
        match method:
            case "TopicLookup":
                return pb.TopicLookupResponse(
                    response_type=pb.TopicLookupResponse.Connect, connect_url=self.url, broker_url=self.url
                )
            case "TopicPartitions":
                return pb.TopicPartitionsResponse(partitions=[request.topic])
            case "CreateProducer":
                return pb.ProducerResponse(request_id=request.request_id, producer_id=self._next_id)
            case "Subscribe":
                return pb.ConsumerResponse(request_id=request.request_id, consumer_id=self._next_id)
            case "HealthCheck":
                return pb.HealthCheckResponse(status=pb.HealthCheckResponse.OK)
            case "SendMessage":
                return pb.MessageResponse(request_id=request.request_id)
            case "Ack":
                return pb.AckResponse(request_id=request.request_id)
            case _:
                return pb.NackResponse(request_id=request.request_id)


@pytest.fixture
async def brokers() -> AsyncIterator[list[ScriptedBroker]]:
    """Two of them: the one the client knows, and another to be sent to."""
    made: list[ScriptedBroker] = []
    servers: list[grpc.aio.Server] = []
    for _ in range(2):
        broker = ScriptedBroker()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((broker,))
        broker.port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        made.append(broker)
        servers.append(server)
    yield made
    for server in servers:
        await server.stop(None)


def client_of(broker: ScriptedBroker) -> Client:
    return Client(broker.url, retries=Retries(base_ms=1))


def message(offset: int, topic: str = TOPIC) -> pb.StreamMessage:
    return pb.StreamMessage(
        request_id=offset + 100,
        payload=b"%d" % offset,
        msg_id=pb.MsgID(topic_name=topic, topic_offset=offset),
    )


async def test_a_redirect_is_followed(brokers: list[ScriptedBroker]) -> None:
    known, owner = brokers
    known.script["TopicLookup"] = [
        pb.TopicLookupResponse(
            response_type=pb.TopicLookupResponse.Redirect, connect_url=owner.url, broker_url=owner.url
        )
    ]
    async with client_of(known) as client, Producer(client, TOPIC, name="p") as producer:
        await producer.send(b"x")
    assert (known.count("CreateProducer"), owner.count("CreateProducer"), owner.count("SendMessage")) == (
        0,
        1,
        1,
    )
    assert owner.headers["SendMessage"] == [None]


async def test_behind_a_proxy_every_call_names_the_broker(brokers: list[ScriptedBroker]) -> None:
    proxy = brokers[0]
    proxy.script["TopicLookup"] = [
        pb.TopicLookupResponse(
            response_type=pb.TopicLookupResponse.Connect,
            connect_url=proxy.url,
            broker_url="http://inner:6650",
            proxy=True,
        )
    ]
    async with client_of(proxy) as client, Producer(client, TOPIC, name="p") as producer:
        await producer.send(b"x")
        await asyncio.wait_for(proxy.called["HealthCheck"].wait(), 10)
    assert proxy.headers["TopicLookup"] == [None]
    for method in ("CreateProducer", "SendMessage", "HealthCheck"):
        assert set(proxy.headers[method]) == {"http://inner:6650"}


async def test_a_failing_lookup_is_no_reason_not_to_try(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["TopicLookup"] = [Refused(Status.NOT_FOUND)]
    async with client_of(broker) as client, Producer(client, TOPIC, name="p") as producer:
        await producer.send(b"x")
    assert broker.count("SendMessage") == 1


async def test_creating_waits_for_a_topic_on_its_way(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["CreateProducer"] = [Refused(Status.UNAVAILABLE)] * 3
    async with client_of(broker) as client, Producer(client, TOPIC, name="p"):
        pass
    assert (broker.count("CreateProducer"), broker.count("TopicLookup")) == (4, 4)


async def test_a_refusal_is_told_at_once(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["CreateProducer"] = [Refused(Status.FAILED_PRECONDITION)]
    async with client_of(broker) as client:
        with pytest.raises(CallFailed, match="CreateProducer failed with FAILED_PRECONDITION: as scripted"):
            async with Producer(client, TOPIC, name="p"):
                pass
    assert broker.count("CreateProducer") == 1


async def test_sending_goes_on_elsewhere_when_the_topic_moved(brokers: list[ScriptedBroker]) -> None:
    old, new = brokers
    async with client_of(old) as client, Producer(client, TOPIC, name="p") as producer:
        old.script["SendMessage"] = [Refused(Status.UNAVAILABLE)] * 6
        old.script["TopicLookup"] = [
            pb.TopicLookupResponse(
                response_type=pb.TopicLookupResponse.Redirect, connect_url=new.url, broker_url=new.url
            )
        ]
        number = await producer.send(b"x")
    [(_, sent)] = [call for call in new.calls if call[0] == "SendMessage"]
    assert (sent.payload, sent.request_id, sent.msg_id.broker_addr) == (b"x", number, new.url)


async def test_a_producer_told_to_close_registers_again(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["HealthCheck"] = [pb.HealthCheckResponse(status=pb.HealthCheckResponse.CLOSE)]
    async with client_of(broker) as client, Producer(client, TOPIC, name="p") as producer:
        while broker.count("CreateProducer") < 2:  # the answer to the first ping is on its way
            await producer.send(b"x")
        ids = [request.msg_id.producer_id for method, request in broker.calls if method == "SendMessage"]
        assert len(set(ids)) == 2


async def test_keys_choose_partitions_and_the_rest_takes_turns(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    async with client_of(broker) as client, Producer(client, TOPIC, name="p", partitions=3) as producer:
        for _ in range(6):
            await producer.send(b"turn")
        for _ in range(4):
            await producer.send(b"key", routing_key="k")
    created = [(r.topic_name, r.producer_name) for method, r in broker.calls if method == "CreateProducer"]
    assert created == [(f"{TOPIC}-part-{n}", f"p-{n}") for n in range(3)]
    sent = [r for method, r in broker.calls if method == "SendMessage"]
    turns = [r.msg_id.topic_name for r in sent if r.payload == b"turn"]
    assert turns == [f"{TOPIC}-part-{n}" for n in (0, 1, 2, 0, 1, 2)]
    assert len({r.msg_id.topic_name for r in sent if r.payload == b"key"}) == 1
    assert [r.HasField("routing_key") for r in sent] == [False] * 6 + [True] * 4


async def test_an_ended_stream_is_opened_again_with_the_same_id(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.streams = [[message(0)], [], [message(1), message(2)]]
    async with client_of(broker) as client, Consumer(client, TOPIC, name="c", subscription="s") as consumer:
        received = [await asyncio.wait_for(consumer.receive(), 10) for _ in range(3)]
    assert [m.offset for m in received] == [0, 1, 2]
    assert broker.count("Subscribe") == 1
    assert len({r.consumer_id for method, r in broker.calls if method == "ReceiveMessages"}) == 1


async def test_a_forgotten_consumer_subscribes_again(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["ReceiveMessages"] = [Refused(Status.NOT_FOUND)]
    broker.streams = [[message(7)]]
    async with client_of(broker) as client, Consumer(client, TOPIC, name="c", subscription="s") as consumer:
        assert (await asyncio.wait_for(consumer.receive(), 10)).offset == 7
    assert broker.count("Subscribe") == 2


async def test_an_unreachable_topic_is_subscribed_again_after_some_tries(
    brokers: list[ScriptedBroker],
) -> None:
    broker = brokers[0]
    broker.script["ReceiveMessages"] = [Refused(Status.UNAVAILABLE)] * 7
    broker.streams = [[message(7)]]
    async with client_of(broker) as client, Consumer(client, TOPIC, name="c", subscription="s") as consumer:
        assert (await asyncio.wait_for(consumer.receive(), 10)).offset == 7
    assert broker.count("Subscribe") >= 2


async def test_a_consumer_that_may_not_is_told_so(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["ReceiveMessages"] = [Refused(Status.PERMISSION_DENIED)]
    async with client_of(broker) as client, Consumer(client, TOPIC, name="c", subscription="s") as consumer:
        with pytest.raises(CallFailed) as caught:
            await asyncio.wait_for(consumer.receive(), 10)
    assert caught.value.status is Status.PERMISSION_DENIED


async def test_there_is_an_end_to_reopening(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["ReceiveMessages"] = [Refused(Status.UNAVAILABLE)] * 100
    async with client_of(broker) as client, Consumer(client, TOPIC, name="c", subscription="s") as consumer:
        with pytest.raises(CallFailed):
            await asyncio.wait_for(consumer.receive(), 20)
    assert broker.count("ReceiveMessages") < 30


async def test_acks_and_nacks_go_back_where_the_message_came_from(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    topics = [f"{TOPIC}-part-{n}" for n in range(2)]
    broker.script["TopicPartitions"] = [pb.TopicPartitionsResponse(partitions=topics)]
    broker.streams = [[message(4, topics[0])], [message(5, topics[1])]]
    async with client_of(broker) as client, Consumer(client, TOPIC, name="c", subscription="s") as consumer:
        for _ in range(2):
            received = await asyncio.wait_for(consumer.receive(), 10)
            if received.offset == 4:
                await consumer.ack(received)
            else:
                await consumer.nack(received, delay_ms=50, reason="no")
    [ack] = [r for method, r in broker.calls if method == "Ack"]
    [nack] = [r for method, r in broker.calls if method == "Nack"]
    assert (ack.msg_id.topic_name, ack.msg_id.topic_offset, ack.request_id) == (topics[0], 4, 104)
    assert (nack.msg_id.topic_offset, nack.delay_ms, nack.reason) == (5, 50, "no")
    assert {ack.subscription_name, nack.subscription_name} == {"s"}


async def test_a_topic_without_partitions_and_name_does_not_exist(brokers: list[ScriptedBroker]) -> None:
    broker = brokers[0]
    broker.script["TopicPartitions"] = [pb.TopicPartitionsResponse(request_id=1)]
    async with client_of(broker) as client:
        with pytest.raises(CallFailed, match="no such topic"):
            async with Consumer(client, TOPIC, name="c", subscription="s"):
                pass
    assert broker.count("Subscribe") == 0
