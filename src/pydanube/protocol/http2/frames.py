"""The constants of RFC 9113 and the few frames a server writes."""

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HEADER_BYTES: Final = 9
ID_MASK: Final = 0x7FFFFFFF
WINDOW_MAX: Final = 0x7FFFFFFF
DEFAULT_WINDOW: Final = 65535

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

ACK: Final = 0x1
END_STREAM: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
PRIORITIZED: Final = 0x20

SETTING_HEADER_TABLE_SIZE: Final = 1
SETTING_ENABLE_PUSH: Final = 2
SETTING_MAX_CONCURRENT_STREAMS: Final = 3
SETTING_INITIAL_WINDOW_SIZE: Final = 4
SETTING_MAX_FRAME_SIZE: Final = 5
SETTING_MAX_HEADER_LIST_SIZE: Final = 6

NO_ERROR: Final = 0x0
PROTOCOL_ERROR: Final = 0x1
INTERNAL_ERROR: Final = 0x2
FLOW_CONTROL_ERROR: Final = 0x3
STREAM_CLOSED: Final = 0x5
FRAME_SIZE_ERROR: Final = 0x6
REFUSED_STREAM: Final = 0x7
CANCEL: Final = 0x8
COMPRESSION_ERROR: Final = 0x9
ENHANCE_YOUR_CALM: Final = 0xB

SETTINGS_ACK: Final = b"\x00\x00\x00\x04\x01\x00\x00\x00\x00"


class GoAwayError(Exception):
    """The peer broke a rule that ends the connection: GOAWAY with `code`."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class StreamResetError(Exception):
    """The peer broke a rule that ends one stream: RST_STREAM with `code`."""

    def __init__(self, stream_id: int, code: int) -> None:
        super().__init__(stream_id, code)
        self.stream_id = stream_id
        self.code = code


def frame(kind: int, flags: int, stream_id: int, payload: bytes) -> bytes:
    """One whole frame."""
    return frame_header(len(payload), kind, flags, stream_id) + payload


def frame_header(length: int, kind: int, flags: int, stream_id: int) -> bytes:
    return ((length << 48) | (kind << 40) | (flags << 32) | stream_id).to_bytes(9, "big")


def rst_stream_frame(stream_id: int, code: int) -> bytes:
    return frame(RST_STREAM, 0, stream_id, code.to_bytes(4, "big"))


def window_update_frame(stream_id: int, increment: int) -> bytes:
    return frame(WINDOW_UPDATE, 0, stream_id, increment.to_bytes(4, "big"))


def goaway_frame(last_stream_id: int, code: int, text: str) -> bytes:
    payload = last_stream_id.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode()[:256]
    return frame(GOAWAY, 0, 0, payload)
