"""A small asyncio client of the Danube API, for the command line, tools and tests.

Reaches brokers through the network only; may import protocol and kernel. Start reading at `client.py`.
"""

from pydanube.client.grpc.client import Client
from pydanube.client.grpc.consumer import Consumer, Message
from pydanube.client.grpc.errors import CallFailed, Retries
from pydanube.client.grpc.producer import Producer

__all__ = ["CallFailed", "Client", "Consumer", "Message", "Producer", "Retries"]
