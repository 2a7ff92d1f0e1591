"""Client certificates at a served port: of which authorities they may be, named to clients in the handshake.

A client that has several certificates chooses by these names (RFC 8446, section 4.2.4), and Go's servers send those of
`tls.Config.ClientCAs`. CPython's ssl module checks against authorities and cannot name them, so OpenSSL is called by ctypes.
Where it cannot be reached that way (another interpreter, a build that hides its functions), no names are sent, which the
protocol allows.
"""

from __future__ import annotations

import ctypes
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm

from kube import openssl

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
    reached = openssl.settings_pointer(context)
    if reached is None:
        return
    try:
        size = _names_size(found)
    except (ValueError, UnsupportedAlgorithm, x509.InvalidVersion):
        return  # OpenSSL takes more than cryptography reads
    if size <= MOST_BYTES:
        _name(*reached, found)


def _names_size(certificates: list[bytes]) -> int:
    return sum(len(x509.load_der_x509_certificate(der).subject.public_bytes()) for der in certificates)


def _name(library: ctypes.CDLL, pointer: ctypes.c_void_p, certificates: list[bytes]) -> None:
    for der in certificates:
        place = ctypes.c_char_p(der)
        certificate = ctypes.c_void_p(library.d2i_X509(None, ctypes.byref(place), len(der)))
        library.SSL_CTX_add_client_CA(pointer, certificate)  # copies the name
        library.X509_free(certificate)
