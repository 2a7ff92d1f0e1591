"""The OpenSSL that the ssl module is linked with, for settings that the module has no name for."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ssl
import sys


def settings_pointer(context: ssl.SSLContext) -> tuple[ctypes.CDLL, ctypes.c_void_p] | None:
    """Return the library and the context's SSL_CTX; None in another interpreter, or in a build that hides its functions."""
    found = library()
    if found is None:
        return None
    # CPython's PySSLContext has its SSL_CTX behind the object's head (Modules/_ssl.c, since 3.2).
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    if (found.SSL_CTX_get_options(pointer) ^ context.options) & 0xFFFFFFFF:
        return None
    return found, pointer


@functools.cache
def library() -> ctypes.CDLL | None:
    """Return the library with the types of the functions in use; None as `settings_pointer`."""
    if sys.implementation.name != "cpython":
        return None
    with contextlib.suppress(OSError, AttributeError):
        loaded = ctypes.CDLL(getattr(sys.modules["_ssl"], "__file__", None))
        loaded.SSL_CTX_get_options.restype = ctypes.c_ulong
        loaded.SSL_CTX_get_options.argtypes = [ctypes.c_void_p]
        loaded.SSL_CTX_ctrl.restype = ctypes.c_long
        loaded.SSL_CTX_ctrl.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_void_p]
        for name in ("SSL_CTX_set_msg_callback", "SSL_set_msg_callback"):
            function = getattr(loaded, name)
            function.restype, function.argtypes = None, [ctypes.c_void_p, ctypes.c_void_p]
        loaded.d2i_X509.restype = ctypes.c_void_p
        loaded.d2i_X509.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        loaded.SSL_CTX_add_client_CA.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        loaded.X509_free.argtypes = [ctypes.c_void_p]
        loaded.X509_free.restype = None
        return loaded
    return None
