"""What the writer thread counts; read by the metrics from the loop thread."""

from pydanube.kernel.distribution import Distribution


class WriterStats:
    """Every number only grows."""

    __slots__ = ("bytes", "groups", "rotations", "sync_latency_us", "syncs")

    def __init__(self) -> None:
        self.groups = 0
        """Writes to the journal."""
        self.bytes = 0
        """Bytes of those writes, padding included."""
        self.syncs = 0
        """Writes that were made durable before anybody was told."""
        self.rotations = 0
        self.sync_latency_us = Distribution()
        """Time of one durable write."""
