"""A small broker in memory, built from the protocol's codec, that does for one frame what a test scripts.

Start reading at `broker.py`.
"""

from scripted_broker.broker import Peer, ScriptedBroker, Topic
from scripted_broker.faults import ends_channel, fails, loses_answer, loses_request, stays_silent

__all__ = [
    "Peer",
    "ScriptedBroker",
    "Topic",
    "ends_channel",
    "fails",
    "loses_answer",
    "loses_request",
    "stays_silent",
]
