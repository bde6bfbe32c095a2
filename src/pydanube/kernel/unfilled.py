"""Bytes that are received where they stay: an object of the right size first, its content straight from the socket.

What Python code could do instead is collect pieces and join them, which copies every byte twice. CPython's C interface
allows to fill bytes nobody else has seen yet, and is called here directly.
"""

import ctypes
from typing import Final, cast

SIZE_MIN: Final = 2
"""Shorter ones are shared by the whole interpreter."""

_WRITABLE: Final = 0x200
"""PyBUF_WRITE of the C interface."""

_new = ctypes.pythonapi.PyBytes_FromStringAndSize
_new.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t)
_new.restype = ctypes.py_object
_address = ctypes.pythonapi.PyBytes_AsString
_address.argtypes = (ctypes.py_object,)
_address.restype = ctypes.c_void_p
_view = ctypes.pythonapi.PyMemoryView_FromMemory
_view.argtypes = (ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
_view.restype = ctypes.py_object


def unfilled_bytes(size: int) -> tuple[bytes, memoryview]:
    """Bytes with whatever the memory held before, and a view to fill them by.

    The view does not keep the bytes alive: hold both, and show nobody the bytes before all of them are written.
    """
    if size < SIZE_MIN:
        raise ValueError(f"{size} bytes cannot be filled later, only {SIZE_MIN} or more can")
    data = cast(bytes, _new(None, size))
    return data, cast(memoryview, _view(_address(data), size, _WRITABLE))
