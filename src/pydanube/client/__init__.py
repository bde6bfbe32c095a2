"""A small asyncio client of the Danube API, for the command line, tools and tests.

Reaches brokers through the network only; may import protocol and kernel. Start reading at `client.py`.
"""

from pydanube.client.client import Client
from pydanube.client.consumer import Consumer, Message
from pydanube.client.errors import CallFailed, Retries
from pydanube.client.producer import Producer

__all__ = ["CallFailed", "Client", "Consumer", "Message", "Producer", "Retries"]
