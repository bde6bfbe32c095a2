"""Maintenance of history that lies in an object store: through the broker, and straight from the store."""

import pytest
from peer_servers import BUCKET, WRITER, PeerServer
from pyspark.sql import SparkSession
from spark_harness.broker_process import StartBroker

from pydanube.spark.connection import Connection
from pydanube.spark.maintenance.auditing import audit
from pydanube.spark.maintenance.compaction import CompactionSettings, compact
from pydanube.spark.maintenance.erasure import ErasureSettings, erase
from pydanube.spark.maintenance.sealed_history import SealedHistory, Target

pytestmark = pytest.mark.timeout(300)

TOPIC = "/default/cold"


def test_history_in_a_bucket_is_compacted_erased_and_audited(
    spark: SparkSession, s3: PeerServer, start_broker: StartBroker
) -> None:
    store = {"endpoint": s3.endpoint, "access_key": WRITER[0], "secret_key": WRITER[1]}
    durable = {"backend": "s3", "root": f"{BUCKET}/maintenance", **store}
    journal = {"rotation": {"max_bytes": 1 << 20}}
    broker = start_broker(storage={"mode": "object_store", "durable": durable, "wal": journal})
    for key in ("alice", "bob"):
        broker.publish(TOPIC, [f"{key} {number}".encode() for number in range(50)], key=key)
        broker.seal(TOPIC)
    through_broker = Target(spark, broker.connection, Connection(broker.admin_address))
    from_store = Target(spark, broker.connection, Connection(broker.admin_address), store)

    assert compact(through_broker, TOPIC, CompactionSettings()).segments_after == 1
    erased = erase(from_store, TOPIC, ErasureSettings(keys=["alice"]))
    assert (erased.failures, erased.removed, erased.old_files_removed) == ([], 50, 3)
    for target in (through_broker, from_store):
        report = audit(target, [TOPIC])
        assert (report.findings, report.topics[0].messages) == ([], 100)
    (placed,) = SealedHistory.of(from_store, TOPIC).parts[TOPIC]
    assert placed.place.startswith("s3://")
    with broker.client() as client, client.reader(TOPIC, start="earliest", end="latest") as reader:
        assert [message.payload for message in reader] == [b"bob %d" % number for number in range(50)]
