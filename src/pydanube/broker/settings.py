"""What the operator decided for the whole broker."""

from dataclasses import dataclass
from fnmatch import fnmatchcase

from pydanube.kernel.names import TopicName
from pydanube.kernel.policies import FsyncPolicy, Policies, Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """What the operator decided for the whole broker."""

    auto_create_topics: bool = True
    bootstrap_namespaces: tuple[str, ...] = ()
    policies: Policies = Policies()
    max_unacked_messages: int = 10
    retention: Retention = Retention()
    """When history is deleted."""
    topic_retention: tuple[tuple[str, Retention], ...] = ()
    """Topic name or pattern to policy; the first that matches wins over `retention`."""
    copies: Retention | None = None
    """When local copies of what is in the durable store too are deleted; None: at once."""
    fsync: FsyncPolicy = FsyncPolicy.ALWAYS
    topic_fsync: tuple[tuple[str, FsyncPolicy], ...] = ()

    def retention_of(self, topic: TopicName) -> Retention:
        for pattern, policy in self.topic_retention:
            if fnmatchcase(str(topic), pattern):
                return policy
        return self.retention

    def fsync_of(self, topic: TopicName) -> FsyncPolicy:
        """The first pattern that matches the topic's name wins."""
        for pattern, policy in self.topic_fsync:
            if fnmatchcase(str(topic), pattern):
                return policy
        return self.fsync
