"""The scenario's side of an agent: commands out, replies and messages in (protocol: ../README.md)."""

import base64
import contextlib
import itertools
import json
import queue
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

REPLY_SECONDS_MAX = 30
MESSAGE_SECONDS_MAX = 10
SILENCE_SECONDS = 0.7
CLIENT_DEFAULT = 0
"""For `retries`: as many as the client makes by itself, five."""
SETTLE_SECONDS = 0.5
"""Time between opening a stream and relying on it: no client says when its stream is open."""


class ClientError(Exception):
    """The client reported a failure; `code` is the gRPC status name or empty if it failed by itself."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code or 'client error'}: {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True, slots=True)
class Received:
    """One message as the client handed it to the application."""

    tag: int
    topic: str
    offset: int
    producer_id: int
    producer_name: str
    publish_time: int
    payload: bytes
    attributes: dict[str, str] = field(hash=False)
    key: str | None
    schema_id: int | None = None
    schema_version: int | None = None

    @property
    def text(self) -> str:
        return self.payload.decode()


class Pending:
    """A command under way."""

    def __init__(self) -> None:
        self._answered = threading.Event()
        self._reply: dict[str, Any] = {}

    def answer(self, reply: dict[str, Any]) -> None:
        self._reply = reply
        self._answered.set()

    def wait(self, within: float = REPLY_SECONDS_MAX) -> Any:
        if not self._answered.wait(within):
            raise AssertionError(f"the client gave no answer within {within} s")
        if error := self._reply.get("error"):
            raise ClientError(error["code"], error["text"])
        return self._reply["ok"]


class Agent:
    """A client process under remote control; safe to leave by `close` or to end by `kill`."""

    def __init__(self, name: str, command: Sequence[str], broker_url: str) -> None:
        self.name = name
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - lives as long as the process
        self._process = subprocess.Popen(
            [*command, "--broker-url", broker_url],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, text=True,
        )  # fmt: skip
        self._last_words = ""
        self._ids = itertools.count(1)
        self._pending: dict[int, Pending] = {}
        self._consumers: dict[str, RemoteConsumer] = {}
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    @property
    def stderr(self) -> str:
        """The last words of the client's log, also after its end."""
        if not self._stderr.closed:
            self._stderr.seek(0)
            self._last_words = self._stderr.read()[-8_000:]
        return self._last_words

    def begin(self, verb: str, **fields: Any) -> Pending:
        """Send a command and return without waiting for its end."""
        assert self._process.stdin is not None
        number, pending = next(self._ids), Pending()
        self._pending[number] = pending
        self._process.stdin.write(json.dumps({"id": number, "do": verb, **fields}) + "\n")
        self._process.stdin.flush()
        return pending

    def call(self, verb: str, **fields: Any) -> Any:
        return self.begin(verb, **fields).wait()

    def producer(
        self,
        topic: str,
        *,
        name: str = "producer",
        reliable: bool = True,
        partitions: int = 0,
        retries: int = CLIENT_DEFAULT,
        schema: dict[str, Any] | None = None,
    ) -> "RemoteProducer":
        label = f"p{next(self._ids)}"
        self.call(
            "producer",
            label=label,
            topic=topic,
            name=name,
            reliable=reliable,
            partitions=partitions,
            retries=retries,
            **{"schema": schema} if schema else {},
        )
        return RemoteProducer(self, label)

    def subscribe(
        self,
        topic: str,
        *,
        name: str = "consumer",
        subscription: str = "subscription",
        kind: str = "Exclusive",
        key_filters: Iterable[str] = (),
        retries: int = CLIENT_DEFAULT,
    ) -> "RemoteConsumer":
        """Subscribe without opening the stream."""
        consumer = RemoteConsumer(self, f"c{next(self._ids)}")
        self._consumers[consumer.label] = consumer
        self.call(
            "consumer",
            label=consumer.label,
            topic=topic,
            name=name,
            subscription=subscription,
            type=kind,
            key_filters=list(key_filters),
            retries=retries,
        )
        return consumer

    def consumer(self, topic: str, *, auto_ack: bool = False, **options: Any) -> "RemoteConsumer":
        """Subscribe and open the stream."""
        return self.subscribe(topic, **options).receive(auto_ack=auto_ack)

    def close(self) -> None:
        """Let the client end by itself, as an application that returns from main."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.close()
            self._process.wait(5)
        except (OSError, subprocess.TimeoutExpired):
            self._process.kill()
        self._join()

    def kill(self) -> None:
        """End the client as a crash would: its connection just breaks."""
        self._process.kill()
        self._join()

    def _join(self) -> None:
        self._process.wait()
        self._reader.join()
        if self._process.stdin is not None and not self._process.stdin.closed:
            # Bytes a killed client never read would raise on close; they are of no interest any more.
            with contextlib.suppress(BrokenPipeError):
                self._process.stdin.close()
        self._last_words = self.stderr
        self._stderr.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._dispatch(json.loads(line))
        for pending in list(self._pending.values()):
            pending.answer({"error": {"code": "", "text": "the client process ended"}})

    def _dispatch(self, line: dict[str, Any]) -> None:
        match line:
            case {"id": number}:
                self._pending.pop(number).answer(line)
            case {"message": event}:
                label = event.pop("consumer")
                payload = base64.b64decode(event.pop("payload"))
                self._consumers[label].inbox.put(Received(payload=payload, **event))
            case {"ended": {"consumer": label}}:
                self._consumers[label].ended.set()
            case {"ack_failed": {"consumer": label, "error": error}}:
                self._consumers[label].ack_failures.append(ClientError(error["code"], error["text"]))


class RemoteProducer:
    def __init__(self, agent: Agent, label: str) -> None:
        self._agent = agent
        self._label = label

    def send(
        self, *payloads: str | bytes, attributes: dict[str, str] | None = None, key: str | None = None
    ) -> None:
        """Send one after the other, each after the broker's answer to the one before."""
        self.begin_send(*payloads, attributes=attributes, key=key).wait()

    def send_keyed(self, *keyed: tuple[str, str]) -> None:
        """Send (key, payload) pairs one after the other."""
        messages = [_message(payload, {}, key) for key, payload in keyed]
        self._agent.call("send", label=self._label, messages=messages)

    def begin_send(
        self, *payloads: str | bytes, attributes: dict[str, str] | None = None, key: str | None = None
    ) -> Pending:
        messages = [_message(payload, attributes or {}, key) for payload in payloads]
        return self._agent.begin("send", label=self._label, messages=messages)

    def close(self) -> None:
        self._agent.call("close_producer", label=self._label)


class RemoteConsumer:
    def __init__(self, agent: Agent, label: str) -> None:
        self._agent = agent
        self.label = label
        self.inbox: queue.Queue[Received] = queue.Queue()
        self.ended = threading.Event()
        self.ack_failures: list[ClientError] = []

    def receive(self, *, auto_ack: bool = False) -> "RemoteConsumer":
        self._agent.call("receive", label=self.label, auto_ack=auto_ack)
        return self

    def take(self, count: int, *, within: float = MESSAGE_SECONDS_MAX) -> list[Received]:
        """The next `count` messages; fails, naming what came, if they do not come in time."""
        deadline = time.monotonic() + within
        taken: list[Received] = []
        while len(taken) < count:
            try:
                taken.append(self.inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                came = [message.payload[:40] for message in taken]
                raise AssertionError(f"{len(taken)} of {count} messages within {within} s: {came}") from None
        return taken

    def next(self, *, within: float = MESSAGE_SECONDS_MAX) -> Received:
        return self.take(1, within=within)[0]

    def texts(self, count: int, *, within: float = MESSAGE_SECONDS_MAX) -> list[str]:
        return [message.text for message in self.take(count, within=within)]

    def until(self, text: str, *, within: float = MESSAGE_SECONDS_MAX) -> list[Received]:
        """Everything up to and including the message that reads `text`."""
        deadline = time.monotonic() + within
        seen: list[Received] = []
        while not seen or seen[-1].text != text:
            try:
                seen.append(self.inbox.get(timeout=max(0.0, deadline - time.monotonic())))
            except queue.Empty:
                came = [message.payload[:40] for message in seen]
                raise AssertionError(f"no {text!r} within {within} s, only {came}") from None
        return seen

    def drain(self) -> list[Received]:
        """What has arrived by now."""
        arrived: list[Received] = []
        while not self.inbox.empty():
            arrived.append(self.inbox.get_nowait())
        return arrived

    def assert_silent(self, seconds: float = SILENCE_SECONDS) -> None:
        """Nothing may come; too short a wait can only miss a fault, never invent one."""
        try:
            message = self.inbox.get(timeout=seconds)
        except queue.Empty:
            return
        raise AssertionError(f"unexpected message {message.payload[:40]!r} at offset {message.offset}")

    def ack(self, *messages: Received) -> None:
        for message in messages:
            self._agent.call("ack", label=self.label, tag=message.tag)

    def nack(self, message: Received, *, delay_ms: int | None = None, reason: str | None = None) -> None:
        self._agent.call("nack", label=self.label, tag=message.tag, delay_ms=delay_ms, reason=reason)

    def close(self) -> None:
        self._agent.call("close_consumer", label=self.label)


def settle() -> None:
    """Give streams just opened the time every client suite gives them."""
    time.sleep(SETTLE_SECONDS)


def gather(
    consumers: Sequence[RemoteConsumer], total: int, *, within: float = MESSAGE_SECONDS_MAX
) -> list[list[Received]]:
    """Each consumer's share of `total` messages, whoever gets them."""
    deadline = time.monotonic() + within
    shares: list[list[Received]] = [[] for _ in consumers]
    while (missing := total - sum(map(len, shares))) > 0:
        if time.monotonic() > deadline:
            raise AssertionError(f"{missing} of {total} messages missing after {within} s")
        for consumer, share in zip(consumers, shares, strict=True):
            with contextlib.suppress(queue.Empty):
                share.append(consumer.inbox.get(timeout=0.01))
    return shares


def publish_until_received(
    producer: RemoteProducer, consumer: RemoteConsumer, text: str, *, within: float
) -> Received:
    """Publish again and again until it arrives: a non-reliable topic keeps nothing for a stream not yet open."""
    deadline = time.monotonic() + within
    while time.monotonic() < deadline:
        producer.send(text)
        with contextlib.suppress(queue.Empty):
            while True:
                message = consumer.inbox.get(timeout=0.1)
                if message.text == text:
                    return message
    raise AssertionError(f"{text!r} did not arrive within {within} s")


def _message(payload: str | bytes, attributes: dict[str, str], key: str | None) -> dict[str, Any]:
    data = payload.encode() if isinstance(payload, str) else payload
    return {"payload": base64.b64encode(data).decode(), "attributes": attributes, "key": key}
