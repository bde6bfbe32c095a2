"""What the peers' tools print, as captured from them, becomes figures; anything else is refused."""

import pytest

from bench.compare import outputs
from bench.load import LoadError

REDIS = (
    '"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms",'
    '"max_latency_ms"\n'
    '"XADD b:0 * d aaaaaaaa","139377.77","28.999","1.928","31.839","45.215","47.167","47.295"\n'
)
KAFKA_PRODUCER = (
    "Warmup first 20000 records. Steady state results will print after the complete test summary.\n"
    "30001 records sent, 6000.2 records/sec (0.73 MB/sec), 364.5 ms avg latency, 799.0 ms max latency.\n"
    "100000 records sent, 47370.914259 records/sec (5.78 MB/sec), 364.55 ms avg latency, 799.00 ms max latency,"
    " 422 ms 50th, 517 ms 95th, 520 ms 99th, 522 ms 99.9th.\n"
    "80000 steady state records sent, 70237.050044 records/sec (8.57 MB/sec), 413.79 ms avg latency, 528.00 ms max"
    " latency, 438 ms 50th, 518 ms 95th, 520 ms 99th, 522 ms 99.9th.\n"
)
KAFKA_CONSUMER = (
    "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms,"
    " fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n"
    "2026-11-16 03:22:00:480, 2026-11-16 03:22:02:204, 12.2070, 7.0806, 100000, 58004.6404, 1339, 385, 31.7066,"
    " 259740.2597\n"
)
PERF_TEST_SHORT = (
    "id: test-032313-146, time 1.007 s, sent: 14597 msg/s, confirmed: 7372 msg/s, nacked: 0 msg/s,"
    " min/median/75th/95th/99th confirm latency: 91358/485734/585754/714686/754172 µs\n"
    "test stopped (Producer reached message limit [16])\n"
    "id: test-032313-146, sending rate avg: 10145 msg/s\n"
    "id: test-032313-146, receiving rate avg: 0 msg/s\n"
    "id: test-032313-146, confirm latency min/median/75th/95th/99th 91162/454403/572929/724926/756323 µs\n"
)


def _second(number: int, confirmed: int, received: int, p99_us: int) -> str:
    return (
        f"id: test-032319-799, time {number}.000 s, sent: 501 msg/s, confirmed: {confirmed} msg/s, nacked: 0 msg/s,"
        f" received: {received} msg/s, min/median/75th/95th/99th consumer latency: 578/1171/3215/24561/{p99_us} µs,"
        " confirm latency: 510/962/2482/23803/25476 µs\n"
    )


PERF_TEST_LONG = (
    _second(1, 100, 110, 90_000)
    + _second(2, 490, 495, 3_000)
    + _second(3, 510, 505, 5_000)
    + "test stopped (Reached time limit)\n"
    "id: test-032319-799, sending rate avg: 380 msg/s\n"
    "id: test-032319-799, receiving rate avg: 381 msg/s\n"
    "id: test-032319-799, consumer latency min/median/75th/95th/99th 494/908/1307/8450/24375 µs\n"
    "id: test-032319-799, confirm latency min/median/75th/95th/99th 468/812/1094/8993/23147 µs\n"
)
DANUBE = '{"messages": 2000, "messages_per_second": 4000.0, "p50_us": 1.5, "p99_us": 2.5, "p999_us": 3.5}'


def test_a_driver_prints_one_line_of_json_last() -> None:
    text = 'noise\n{"messages": 10, "seconds": 0.5, "p50_us": 1, "p99_us": 2, "p999_us": 3}\n'
    assert outputs.driver_line(text) == outputs.Outcome(10, 0.5, 1.0, 2.0, 3.0)


def test_danube_bench_gives_its_rate_and_percentiles() -> None:
    assert outputs.danube_bench(DANUBE) == outputs.Outcome(2000, 0.5, 1.5, 2.5, 3.5)


def test_redis_benchmark_counts_requests_and_we_count_messages() -> None:
    outcome = outputs.redis_benchmark(REDIS, requests=50, messages_per_request=1000)
    assert outcome.messages == 50_000
    assert outcome.rate == pytest.approx(139_377_770)


def test_kafka_producers_count_everything_at_the_rate_of_the_steady_state() -> None:
    outcome = outputs.kafka_producer(KAFKA_PRODUCER)
    assert outcome.messages == 100_000
    assert outcome.rate == pytest.approx(70237.05, rel=1e-6)


def test_kafka_producers_without_a_warm_up_have_one_summary() -> None:
    summary = KAFKA_PRODUCER.splitlines()[2] + "\n"
    assert outputs.kafka_producer(summary).rate == pytest.approx(47370.9, rel=1e-6)


def test_kafka_consumers_are_timed_while_they_fetch() -> None:
    assert outputs.kafka_consumer(KAFKA_CONSUMER) == outputs.Outcome(100_000, 0.385)


def test_a_short_perf_test_has_its_average_only() -> None:
    assert outputs.perf_test(PERF_TEST_SHORT, messages=16_000, received=False).rate == pytest.approx(10_145)


@pytest.mark.parametrize(("received", "rate"), [(False, 500), (True, 500)])
def test_a_longer_perf_test_leaves_its_first_second_out(received: bool, rate: int) -> None:
    outcome = outputs.perf_test(PERF_TEST_LONG, messages=1500, received=received)
    assert outcome.rate == pytest.approx(rate)
    assert (outcome.p50_us, outcome.p99_us, outcome.p999_us) == (1171, 4_000, 0)


def test_a_short_perf_test_has_its_latency_as_a_whole() -> None:
    lines = PERF_TEST_LONG.splitlines(keepends=True)
    outcome = outputs.perf_test("".join(lines[:1] + lines[3:]), messages=100, received=True)
    assert (outcome.p50_us, outcome.p99_us) == (908, 24375)


@pytest.mark.parametrize("text", ["", "Exception in thread main", '{"messages": 10}', "[]", '"test","rps"\n'])
def test_what_is_no_result_is_an_error_that_shows_it(text: str) -> None:
    for read in (
        outputs.driver_line,
        outputs.danube_bench,
        outputs.kafka_producer,
        outputs.kafka_consumer,
        lambda text: outputs.redis_benchmark(text, requests=1),
        lambda text: outputs.perf_test(text, messages=1, received=True),
    ):
        with pytest.raises(LoadError, match="printed no result"):
            read(text)


def test_a_tool_that_received_nothing_has_no_rate() -> None:
    with pytest.raises(LoadError, match="printed no result"):
        outputs.perf_test(PERF_TEST_SHORT, messages=1, received=True)
