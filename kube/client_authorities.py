"""Client certificates at a served port: of which authorities they may be, named to clients in the handshake.

A client that has several certificates chooses by these names (RFC 8446, section 4.2.4), and Go's servers send those of
`tls.Config.ClientCAs`. CPython's ssl module checks against authorities and cannot name them, so OpenSSL is asked by ctypes.
Where it cannot be reached that way (another interpreter, a build that hides its functions), no names are sent, which the
protocol allows.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import ssl
import sys
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

MOST_BYTES = 32 * 1024
"""Of names; all of a longer list are left out. A handshake's message takes 64 KiB, and each client is sent the list."""


def accept(context: ssl.SSLContext, *files: Path) -> None:
    """Ask clients for a certificate that an authority in one of the files has signed; it may be missing.

    Raises OSError as `load_verify_locations`.
    """
    for file in files:
        context.load_verify_locations(file)
    context.verify_mode = ssl.CERT_OPTIONAL
    found = context.get_ca_certs(binary_form=True)
    library = _openssl()
    if library is None:
        return
    try:
        size = _names_size(found)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return  # OpenSSL takes more than cryptography reads
    if size <= MOST_BYTES:
        _name(library, context, found)


def _names_size(certificates: list[bytes]) -> int:
    return sum(len(x509.load_der_x509_certificate(der).subject.public_bytes()) for der in certificates)


def _name(library: ctypes.CDLL, context: ssl.SSLContext, certificates: list[bytes]) -> None:
    # CPython's PySSLContext has its SSL_CTX behind the object's head (Modules/_ssl.c, since 3.2).
    pointer = ctypes.c_void_p.from_address(id(context) + object.__basicsize__)
    if (library.SSL_CTX_get_options(pointer) ^ context.options) & 0xFFFFFFFF:
        return
    for der in certificates:
        place = ctypes.c_char_p(der)
        certificate = ctypes.c_void_p(library.d2i_X509(None, ctypes.byref(place), len(der)))
        library.SSL_CTX_add_client_CA(pointer, certificate)  # copies the name
        library.X509_free(certificate)


@functools.cache
def _openssl() -> ctypes.CDLL | None:
    """Return the OpenSSL that the ssl module is linked with, None where its functions are not available."""
    if sys.implementation.name != "cpython":
        return None
    with contextlib.suppress(OSError, AttributeError):
        library = ctypes.CDLL(getattr(sys.modules["_ssl"], "__file__", None))
        library.SSL_CTX_get_options.restype = ctypes.c_ulong
        library.SSL_CTX_get_options.argtypes = [ctypes.c_void_p]
        library.d2i_X509.restype = ctypes.c_void_p
        library.d2i_X509.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
        library.SSL_CTX_add_client_CA.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        library.X509_free.argtypes = [ctypes.c_void_p]
        library.X509_free.restype = None
        return library
    return None
