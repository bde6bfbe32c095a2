"""Compiles the hot modules with mypyc when PYDANUBE_COMPILE=1; otherwise this is a plain Python package.

    PYDANUBE_COMPILE=1 python setup.py build_ext --inplace    extension modules beside the sources under src/
    PYDANUBE_COMPILE=1 pip wheel .                            a wheel that holds them

The sources are the same either way. PYDANUBE_PURE=1 at run time prefers them over what was compiled.
"""

import os

from setuptools import Extension, setup

# Compiled together, so that calls between them are direct. Add a module only with a measurement.
HOT_MODULES = [
    f"src/pydanube/{module}.py"
    for module in (
        "kernel/checksums",
        "kernel/distribution",
        "protocol/protobuf_scan",
        "protocol/messages",
        "protocol/native/frames",
        "protocol/native/bodies",
        "protocol/native/batch",
        "protocol/native/timing",
        "protocol/native/ipc_message",
        "protocol/native/payload_batch",
        "protocol/native/head",
        "protocol/native/head_scan",
        "protocol/native/checking",
        "protocol/http2/frames",
        "protocol/http2/limits",
        "protocol/http2/floods",
        "protocol/http2/huffman",
        "protocol/http2/hpack",
        "protocol/http2/headers",
        "protocol/http2/header_blocks",
        "protocol/http2/body_windows",
        "protocol/http2/settings",
        "protocol/http2/stream",
        "protocol/http2/outbox",
        "protocol/http2/connection",
        "protocol/grpc",
        "dispatch/actions",
        "dispatch/consumer",
        "dispatch/counters",
        "dispatch/entry",
        "dispatch/key_filter",
        "dispatch/key_ownership",
        "dispatch/key_queue",
        "dispatch/key_shared",
        "dispatch/live",
        "dispatch/log_order",
        "dispatch/pacing",
        "dispatch/reliable",
        "dispatch/rotation",
        "dispatch/settings",
        "dispatch/shared",
        "dispatch/single_active",
        "dispatch/window",
        "entries/entry",
        "entries/disk",
        "log/stats",
        "log/producers",
        "log/group",
        "log/writer",
        "log/tail",
        "log/commit",
        "log/topic_log",
        "broker/agenda",
        "broker/batches",
        "broker/reader",
        "broker/broker",
        "broker/sessions",
        "broker/subscription",
        "broker/topic",
        "broker/live_subscription",
        "broker/live_topic",
        "broker/durable_subscription",
        "broker/reliable_topic",
        "wire/calls",
        "wire/connections",
        "wire/native_channels",
        "wire/intake",
        "wire/native_limits",
        "wire/native_server",
        "wire/native_requests",
        "wire/native_connection",
        "wire/grpc_connection",
        "wire/producer_service",
        "wire/consumer_service",
        "client/budget",
        "client/connection",
        "client/encoding",
        "client/lanes",
        "client/outgoing",
        "client/publish_queue",
        "client/topic_producer",
    )
]


def extensions() -> list[Extension]:
    if os.environ.get("PYDANUBE_COMPILE") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415  (only needed for a compiled build)

    return mypycify(HOT_MODULES, opt_level="3", debug_level="0")


setup(ext_modules=extensions())
