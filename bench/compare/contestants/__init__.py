"""Everyone who takes part: each peer with equal durability and as it comes, and our broker with both protocols."""

from bench.compare.contestants.contestant import Contestant, Durability
from bench.compare.contestants.danube import ours
from bench.compare.contestants.kafka import Kafka
from bench.compare.contestants.nats import Nats
from bench.compare.contestants.rabbitmq import RabbitMqClassic, RabbitMqQuorum, RabbitMqStream
from bench.compare.contestants.redis import Redis

PEERS = ("danube", "nats", "redis", "kafka", "rabbitmq")


def everyone() -> list[Contestant]:
    return [
        *ours(),
        Nats(Durability.SYNCED),
        Nats(Durability.DEFAULT),
        Redis(Durability.SYNCED),
        Redis(Durability.DEFAULT),
        Kafka(Durability.SYNCED),
        Kafka(Durability.DEFAULT),
        RabbitMqQuorum(),
        RabbitMqClassic(),
        RabbitMqStream(),
    ]
