"""What may happen to a frame."""

from typing import Any

from pydanube.kernel.errors import ErrorCode
from pydanube.protocol.native.frames import Frame
from scripted_broker.broker import Action, Peer


def loses_request(peer: Peer, frame: Frame) -> None:
    """The connection breaks before the broker has read the frame."""
    peer.drop()


def loses_answer(peer: Peer, frame: Frame) -> None:
    """The broker does as it is told, and the connection breaks before the answer leaves."""
    peer.is_muted = True
    peer.honestly(frame)
    peer.drop()


def stays_silent(peer: Peer, frame: Frame) -> None:
    """Nothing happens at all."""


def fails(code: ErrorCode, text: str = "as scripted", **details: Any) -> Action:
    """The broker refuses."""

    def action(peer: Peer, frame: Frame) -> None:
        peer.fail(frame.channel, frame.request, code, text, **details)

    return action


def ends_channel(code: ErrorCode, text: str = "as scripted") -> Action:
    """The broker ends the channel instead of answering."""

    def action(peer: Peer, frame: Frame) -> None:
        peer.close_channel(frame.channel)
        peer.fail(frame.channel, 0, code, text)

    return action
