"""SETTINGS frames (section 6.5): what we ask of the peer, and what the peer may ask of us."""

from librt.strings import read_i32_be

from pydanube.protocol.http2 import frames as h2
from pydanube.protocol.http2.frames import GoAwayError
from pydanube.protocol.http2.limits import Http2Limits


def our_settings(limits: Http2Limits) -> bytes:
    """The frame that opens the connection."""
    return settings_frame(
        [
            (h2.SETTING_MAX_CONCURRENT_STREAMS, limits.concurrent_streams_max),
            (h2.SETTING_INITIAL_WINDOW_SIZE, limits.stream_window_bytes),
            (h2.SETTING_MAX_FRAME_SIZE, limits.frame_bytes_max),
            (h2.SETTING_MAX_HEADER_LIST_SIZE, limits.header_list_bytes_max),
        ]
    )


def settings_frame(values: list[tuple[int, int]]) -> bytes:
    payload = b"".join([name.to_bytes(2, "big") + value.to_bytes(4, "big") for name, value in values])
    return h2.frame(h2.SETTINGS, 0, 0, payload)


def read_settings(payload: bytes) -> dict[int, int]:
    """The settings of a frame, the last one of each name; raise GoAwayError if any is out of its range."""
    if len(payload) % 6:
        raise GoAwayError(h2.FRAME_SIZE_ERROR, f"SETTINGS of {len(payload)} bytes")
    settings: dict[int, int] = {}
    for at in range(0, len(payload), 6):
        name = (payload[at] << 8) | payload[at + 1]
        signed: int = read_i32_be(payload, at + 2)
        value = signed & 0xFFFFFFFF
        _check(name, value)
        settings[name] = value
    return settings


def _check(name: int, value: int) -> None:
    if name == h2.SETTING_INITIAL_WINDOW_SIZE and value > h2.WINDOW_MAX:
        raise GoAwayError(h2.FLOW_CONTROL_ERROR, "SETTINGS_INITIAL_WINDOW_SIZE above 2^31-1")
    if name == h2.SETTING_MAX_FRAME_SIZE and not 16384 <= value <= 16777215:
        raise GoAwayError(h2.PROTOCOL_ERROR, f"SETTINGS_MAX_FRAME_SIZE of {value}")
    if name == h2.SETTING_ENABLE_PUSH and value > 1:
        raise GoAwayError(h2.PROTOCOL_ERROR, f"SETTINGS_ENABLE_PUSH of {value}")
