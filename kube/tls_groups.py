"""The key exchange groups of TLS settings.

By default OpenSSL 3 also offers the finite-field groups up to ffdhe8192, which cost 0.2 s each on the event loop, for a
ClientHello that can be recorded once and sent again. Go has only elliptic curves. Python 3.11 can set a single curve, which
would cost most clients a round trip, so OpenSSL is called directly for the list.
"""

from __future__ import annotations

import ctypes
import functools
import ssl
from collections.abc import Callable

SERVED = "X25519:P-256:P-384"
OFFERED = "X25519:P-256:P-384:P-521"
"""Groups of clients, as Go's. P-521 also allows certificates with such keys in TLS 1.2."""
_SET_GROUPS_LIST = 92
"""SSL_CTRL_SET_GROUPS_LIST of OpenSSL's ssl.h."""


@functools.cache
def _control() -> Callable[[int, int, int, bytes], int] | None:
    """Return OpenSSL's SSL_CTX_ctrl of the library that the ssl module uses; None if it cannot be found."""
    try:
        import _ssl

        function = ctypes.CDLL(_ssl.__file__).SSL_CTX_ctrl
    except (ImportError, AttributeError, OSError):
        return None
    function.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_long, ctypes.c_char_p]
    function.restype = ctypes.c_long
    return function


def limit(context: ssl.SSLContext, groups: str) -> None:
    """Allow only these groups, in order of preference; only P-256 if the list cannot be set."""
    control = _control()
    if control is not None:
        # An SSLContext of CPython holds its SSL_CTX pointer right behind the object's head.
        pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__).value
        if pointer and control(pointer, _SET_GROUPS_LIST, 0, groups.encode()) == 1:
            return
    context.set_ecdh_curve("prime256v1")
