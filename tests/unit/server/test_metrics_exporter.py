"""What a scraper reads, and what it cannot do to the broker."""

import asyncio
import io
import json
import re
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress

import pytest
from prometheus_client.parser import text_string_to_metric_families

from pydanube.kernel.distribution import Distribution
from pydanube.server import metrics
from pydanube.server.exporter import CONNECTIONS_MAX, REQUEST_BYTES_MAX, Exporter
from pydanube.server.listeners import Address
from pydanube.server.logging import configure_logging
from pydanube.server.metrics import TABLE, Kind, Sample, read, render

BROKER_ID = "12345678901234567890"


class Counters:
    def __init__(self) -> None:
        self.messages = 3
        self.latency = Distribution(range(1_000, 101_000, 1_000))

    def samples(self) -> Iterable[Sample]:
        yield metrics.TOPIC_MESSAGES_IN, ["/default/a"], self.messages
        yield metrics.TOPICS_OWNED, [], 1
        yield metrics.PRODUCER_SEND_LATENCY, ["/default/a"], self.latency
        yield metrics.PRODUCER_SENDS, ["/default/a", "ok", "OK"], 3


@pytest.fixture
async def exporter() -> AsyncIterator[Exporter]:
    exporter = Exporter(Address("127.0.0.1", 0), Counters(), broker_id=BROKER_ID)
    await exporter.start()
    yield exporter
    await exporter.stop()


async def leave(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def http(port: int, request: str) -> tuple[str, str]:
    """Status line and body of the answer; nothing if the connection was closed or reset instead."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = ""
    with suppress(ConnectionError):
        writer.write(request.encode())
        answer = (await asyncio.wait_for(reader.read(), 10)).decode()
    await leave(writer)
    head, _, body = answer.partition("\r\n\r\n")
    return head.split("\r\n")[0], body


def test_the_exposition_is_valid_and_every_series_names_the_broker() -> None:
    text = render(Counters().samples(), broker_id=BROKER_ID).decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    samples = [sample for family in families.values() for sample in family.samples]
    assert {sample.labels["broker"] for sample in samples} == {BROKER_ID}
    [messages] = families["danube_topic_messages_in"].samples
    assert (messages.name, messages.value) == ("danube_topic_messages_in_total", 3)
    assert messages.labels == {"topic": "/default/a", "broker": BROKER_ID}


def test_distributions_are_summaries_with_the_quantiles_tools_read() -> None:
    text = render(Counters().samples(), broker_id=BROKER_ID).decode()
    [family] = [
        f for f in text_string_to_metric_families(text) if f.name == "danube_producer_send_latency_ms"
    ]
    assert family.type == "summary"
    quantiles = {s.labels["quantile"]: s.value for s in family.samples if "quantile" in s.labels}
    assert list(quantiles) == ["0", "0.5", "0.9", "0.95", "0.99", "0.999", "1"]
    assert quantiles["0.5"] == pytest.approx(50, rel=0.05)
    assert quantiles["0.95"] == pytest.approx(95, rel=0.05)
    others = {s.name: s.value for s in family.samples if "quantile" not in s.labels}
    assert others["danube_producer_send_latency_ms_count"] == 100
    assert others["danube_producer_send_latency_ms_sum"] == pytest.approx(5050)


def test_a_reading_stands_still_while_counting_goes_on() -> None:
    counters = Counters()
    samples = read(counters)
    counters.latency.record(1)
    text = render(samples, broker_id="1").decode()
    assert re.search(r"danube_producer_send_latency_ms_count\{.*\} 100\.0", text)


def test_every_metric_is_announced_before_it_is_used() -> None:
    text = render([], broker_id=BROKER_ID).decode()
    for metric in TABLE:
        assert f"# TYPE {metric.name} {metric.kind.value}" in text
        assert metric.help


def test_the_table_keeps_the_naming_rules() -> None:
    names = [metric.name for metric in TABLE]
    assert len(set(names)) == len(names)
    for metric in TABLE:
        assert metric.name.startswith("danube_")
        assert metric.name.endswith("_total") == (metric.kind is Kind.COUNTER)


def test_label_values_cannot_break_the_format() -> None:
    samples: list[Sample] = [(metrics.TOPIC_MESSAGES_IN, ['/a/"\n\\'], 1)]
    [family] = [
        f for f in text_string_to_metric_families(render(samples, broker_id="1").decode()) if f.samples
    ]
    assert family.samples[0].labels["topic"] == '/a/"\n\\'


@pytest.mark.parametrize("path", ["/metrics", "/", "/anything?x=1"])
async def test_any_path_shows_the_metrics(exporter: Exporter, path: str) -> None:
    status, body = await http(exporter.port, f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n")
    assert status == "HTTP/1.1 200 OK"
    assert "danube_topic_messages_in_total{" in body


@pytest.mark.parametrize("path", ["/health", "/healthz", "/readyz?verbose"])
async def test_health_says_ok(exporter: Exporter, path: str) -> None:
    assert await http(exporter.port, f"GET {path} HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", "OK")


async def test_head_has_no_body_and_post_is_refused(exporter: Exporter) -> None:
    assert await http(exporter.port, "HEAD /metrics HTTP/1.1\r\n\r\n") == ("HTTP/1.1 200 OK", "")
    status, _ = await http(exporter.port, "POST /metrics HTTP/1.1\r\n\r\n")
    assert status.startswith("HTTP/1.1 405")


@pytest.mark.parametrize("request_text", ["\r\n\r\n", "GET\r\n\r\n", "\x00\xff\r\n\r\n"])
async def test_garbage_gets_an_answer_or_a_close(exporter: Exporter, request_text: str) -> None:
    await http(exporter.port, request_text)
    assert (await http(exporter.port, "GET /health HTTP/1.1\r\n\r\n"))[1] == "OK"


async def test_an_endless_request_is_cut_off(exporter: Exporter) -> None:
    assert await http(
        exporter.port, "GET / HTTP/1.1\r\nX: " + "y" * (3 * REQUEST_BYTES_MAX) + "\r\n\r\n"
    ) == ("", "")


async def test_visitors_beyond_the_bound_are_turned_away(exporter: Exporter) -> None:
    visitors = [await asyncio.open_connection("127.0.0.1", exporter.port) for _ in range(CONNECTIONS_MAX)]
    for _, writer in visitors:
        writer.write(b"GET /")
    assert await http(exporter.port, "GET /health HTTP/1.1\r\n\r\n") == ("", "")
    for reader, writer in visitors:
        writer.write(b"health HTTP/1.1\r\n\r\n")
        assert (await reader.read()).endswith(b"OK")
        await leave(writer)


async def test_many_scrapers_at_once_all_get_an_answer(exporter: Exporter) -> None:
    answers = await asyncio.gather(*(http(exporter.port, "GET / HTTP/1.1\r\n\r\n") for _ in range(10)))
    assert all("danube_broker_topics_owned" in body for _, body in answers)


async def test_a_taken_port_is_logged_not_fatal(exporter: Exporter) -> None:
    stream = io.StringIO()
    configure_logging(stream, environment={})
    second = Exporter(Address("127.0.0.1", exporter.port), Counters(), broker_id="1")
    await second.start()
    await second.stop()
    [line] = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["level"], line["address"]) == ("warning", f"127.0.0.1:{exporter.port}")


async def test_stopping_does_not_wait_for_idle_visitors(exporter: Exporter) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", exporter.port)
    writer.write(b"GET / HTTP")
    await http(exporter.port, "GET /health HTTP/1.1\r\n\r\n")
    await asyncio.wait_for(exporter.stop(), 5)
    assert await reader.read() == b""
    await leave(writer)
