"""danube.StorageService: the catalogue of sealed segments that lakehouse tools read from the durable store."""

from pydanube.kernel.names import TopicName
from pydanube.protocol.danube_pb2 import ListSegmentDescriptorsRequest, ListSegmentDescriptorsResponse
from pydanube.protocol.http2.headers import Headers
from pydanube.wire.calls import parse
from pydanube.wire.grpc_connection import GrpcConnection


class StorageService:
    """Local storage keeps its segments to itself, so the list of durable ones is empty."""

    def list_segment_descriptors(
        self, connection: GrpcConnection, stream_id: int, body: bytes, headers: Headers
    ) -> None:
        request = parse(ListSegmentDescriptorsRequest, body)
        TopicName.parse("/" + request.topic.removeprefix("/"))
        connection.reply(stream_id, ListSegmentDescriptorsResponse().SerializeToString())
