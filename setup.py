"""Compiles the hot modules with mypyc when PYDANUBE_COMPILE=1; otherwise this is a plain Python package.

    PYDANUBE_COMPILE=1 python setup.py build_ext --inplace    extension modules beside the sources under src/
    PYDANUBE_COMPILE=1 pip wheel .                            a wheel that holds them

The sources are the same either way. PYDANUBE_PURE=1 at run time prefers them over what was compiled.
"""

import os

from setuptools import Extension, setup

# Compiled together, so that calls between them are direct. Add a module only with a measurement.
HOT_MODULES = [
    "src/pydanube/protocol/http2/frames.py",
    "src/pydanube/protocol/http2/limits.py",
    "src/pydanube/protocol/http2/floods.py",
    "src/pydanube/protocol/http2/huffman.py",
    "src/pydanube/protocol/http2/hpack.py",
    "src/pydanube/protocol/http2/headers.py",
    "src/pydanube/protocol/http2/stream.py",
    "src/pydanube/protocol/http2/outbox.py",
    "src/pydanube/protocol/http2/connection.py",
    "src/pydanube/protocol/grpc.py",
    "src/pydanube/wire/grpc_connection.py",
]


def extensions() -> list[Extension]:
    if os.environ.get("PYDANUBE_COMPILE") != "1":
        return []
    from mypyc.build import mypycify  # noqa: PLC0415  (only needed for a compiled build)

    return mypycify(HOT_MODULES, opt_level="3", debug_level="0")


setup(ext_modules=extensions())
