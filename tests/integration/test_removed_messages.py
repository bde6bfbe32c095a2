"""Removed messages reach nobody: no reader, and no subscription of any type over any protocol."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pyarrow as pa
import pytest
from broker_harness.admin_process import AdminProcess, admin_process
from click.testing import CliRunner

from pydanube.cli.main import main
from pydanube.client import blocking
from pydanube.history.removed_messages import Chosen
from pydanube.history.rewriting import rewrite_segments
from pydanube.history.segment import SegmentDescriptor
from pydanube.protocol import storage_admin_pb2 as pb

TOPIC = "/default/holes"
COUNT = 400
TYPES = ("exclusive", "shared", "fail-over", "key-shared")
PROTOCOLS = ("native", "grpc")


def is_kept(offset: int) -> bool:
    """Single holes, and one that is long enough to be a batch."""
    return offset % 7 != 3 and not 100 <= offset < 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AdminProcess]:
    """Subscriptions that have consumed nothing yet, and a topic with holes."""
    with admin_process(tmp_path_factory.mktemp("broker")) as process:
        with blocking.connect(f"danube://{process.address}") as client:
            with client.producer(TOPIC) as producer:
                producer.send_many([b"%d" % number for number in range(COUNT)], key="k")
            for protocol in PROTOCOLS:
                for kind in TYPES:
                    name = kind.replace("fail-over", "failover").replace("-", "_")
                    with client.consumer(
                        TOPIC, subscription=f"{protocol}-{kind}", type=name, start="earliest"
                    ):  # type: ignore[arg-type]
                        pass
        make_holes(process, tmp_path_factory.mktemp("made"))
        yield process


def make_holes(process: AdminProcess, folder: Path) -> None:
    """What a maintenance job does with the one segment there is."""

    def choose(table: pa.Table) -> Chosen:
        return np.array([not is_kept(offset) for offset in table.column("offset").to_pylist()])

    with grpc.insecure_channel(process.admin_addr, [("grpc.enable_http_proxy", 0)]) as channel:

        def ask(method: str, request: Any, response: Any) -> Any:
            call = channel.unary_unary(f"/pydanube.storage.v1.StorageAdmin/{method}")
            return response.FromString(call(request.SerializeToString(), timeout=30))

        ask("Seal", pb.SealRequest(topic=TOPIC), pb.SealResponse)
        (segment,) = ask(
            "ListSegments", pb.ListSegmentsRequest(topic=TOPIC), pb.ListSegmentsResponse
        ).segments
        descriptor = SegmentDescriptor(
            **{name: getattr(segment, name) for name in SegmentDescriptor.__struct_fields__}
        )
        made = rewrite_segments(
            [(Path(segment.place), descriptor)],
            folder,
            created_ms=1,
            segment_bytes=1 << 30,
            choose=choose,
            why="erased",
        )
        begin = pb.BeginReplacementRequest(topic=TOPIC, segment_ids=[segment.segment_id])
        number = ask("BeginReplacement", begin, pb.BeginReplacementResponse).replacement_id
        data = Path(made.files[0].path).read_bytes()
        part = pb.ReplacementPartRequest(replacement_id=number, topic=TOPIC, data=data)
        ask("ReplacementPart", part, pb.ReplacementPartResponse)
        finish = pb.FinishReplacementRequest(replacement_id=number, topic=TOPIC)
        ask("FinishReplacement", finish, pb.FinishReplacementResponse)
        # Subscriptions have read some of them already, for the consumers they had.
        ask("DropCopies", pb.DropCopiesRequest(topic=TOPIC), pb.DropCopiesResponse)


KEPT = [number for number in range(COUNT) if is_kept(number)]


def test_readers_leave_them_out(broker: AdminProcess) -> None:
    with blocking.connect(f"danube://{broker.address}") as client:
        with client.reader(TOPIC, start="earliest", end="latest", prefetch_messages=10) as reader:
            assert [(message.offset, int(message.payload)) for message in reader] == list(
                zip(KEPT, KEPT, strict=True)
            )
        with client.reader(TOPIC, start="earliest", end="latest") as reader:
            offsets = [offset for batch in reader.batches() for offset in batch.column("offset").to_pylist()]
    assert offsets == KEPT


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", TYPES)
def test_subscriptions_pass_over_them(broker: AdminProcess, protocol: str, kind: str) -> None:
    scheme = "http" if protocol == "grpc" else "danube"
    subscription = f"{protocol}-{kind}"
    arguments = ["consume", "-s", f"{scheme}://{broker.address}", "--protocol", protocol, "-t", TOPIC]
    arguments += [
        "-m",
        subscription,
        "--sub-type",
        kind,
        "-c",
        str(len(KEPT)),
        "--timeout",
        "30",
        "-o",
        "json",
    ]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert [json.loads(line)["payload"] for line in result.stdout.splitlines()] == [
        str(each) for each in KEPT
    ]
