"""Limits on the certificates that a peer sends in a TLS handshake, checked before OpenSSL decodes them.

OpenSSL decodes the public key of every certificate of a chain, also where nothing is verified. A key on a curve with explicit
parameters, given as a compressed point, costs a square root modulo a number of the peer's choice: 0.2 s of C code for 600
bytes, and OpenSSL reads 100 KiB of certificates. It has no option against that. But it calls a message callback for each
handshake message, which has been received and decrypted, and not parsed yet. The callback here reads the certificates as strict
DER. If one has a key that is not allowed, it overwrites the message with an invalid length, and the handshake fails.

Allowed are the keys that Go's crypto/x509 parses and verifies with: RSA, Ed25519, and uncompressed points of P-224, P-256,
P-384 and P-521. The callback is removed from a connection when the peer's last handshake message has come: it would be called
for each record.
"""

from __future__ import annotations

import ctypes
import logging
import ssl

from kube import openssl, step_limit

log = logging.getLogger(__name__)

OF_CLIENTS = 8 * 1024
"""Bytes of the chain that a client may send to a server."""
OF_SERVERS = 16 * 1024
"""Bytes of the chain that a server may send to a client. Four certificates with RSA keys of 4096 bits have 8 KiB."""
REQUEST = 48 * 1024
"""Bytes of a server's request for a certificate, with the names of authorities, at a client that has one. OpenSSL has one limit
for both messages, and a server of Wherry's sends up to 32 KiB (`kube/client_authorities.py`)."""
MOST = 16
"""Certificates of a chain."""

_SET_MAX_CERT_LIST = 51
_HANDSHAKE, _HEADER = 22, 4
_CERTIFICATE, _FINISHED, _COMPRESSED_CERTIFICATE = 11, 20, 25
_NO_RX_COMPRESSION = 1 << 33
_TLS13 = 0x0304
_EC = bytes.fromhex("2a8648ce3d0201")
_CURVES = {
    bytes.fromhex("2b81040021"): 28,
    bytes.fromhex("2a8648ce3d030107"): 32,
    bytes.fromhex("2b81040022"): 48,
    bytes.fromhex("2b81040023"): 66,
}
"""Bytes of a coordinate by the curve's identifier: P-224, P-256, P-384, P-521."""
_OTHERS = (bytes.fromhex("2a864886f70d010101"), bytes.fromhex("2a864886f70d01010a"), bytes.fromhex("2b6570"))
"""RSA, RSA-PSS and Ed25519."""


class CertificateRefused(ValueError):
    """A certificate is not strict DER, or has a key that is not allowed."""


def limit_clients(context: ssl.SSLContext) -> None:
    """Limit the certificates that clients may send to a server with these settings."""
    _limit(context, OF_CLIENTS)


def limit_servers(context: ssl.SSLContext, request: int = REQUEST) -> None:
    """Limit the certificates that servers may send to a client with these settings, and their request for one.

    The client refuses to renegotiate, as Go's: the certificates of a second handshake would not be checked.
    """
    context.options |= ssl.OP_NO_RENEGOTIATION
    _limit(context, request)


def check(der: bytes) -> None:
    """Raise CertificateRefused unless a certificate's public key is cheap to decode."""
    start, end = _enter(der, 0, len(der), 0x30)
    if end != len(der):
        raise CertificateRefused("trailing data")
    start, end = _enter(der, start, end, 0x30)
    if start < end and der[start] == 0xA0:
        _, start = _enter(der, start, end, 0xA0)
    for tag in (0x02, 0x30, 0x30, 0x30, 0x30):  # serial number, signature algorithm, issuer, validity, subject
        _, start = _enter(der, start, end, tag)
    start, end = _enter(der, start, end, 0x30)
    algorithm, after = _enter(der, start, end, 0x30)
    name, parameters = _enter(der, algorithm, after, 0x06)
    kind = der[name:parameters]
    if kind in _OTHERS:
        return
    if kind != _EC:
        raise CertificateRefused("unknown public key algorithm")
    if der[parameters:after][:1] != b"\x06":
        raise CertificateRefused("elliptic curve with explicit parameters")
    curve, curve_end = _enter(der, parameters, after, 0x06)
    size = _CURVES.get(der[curve:curve_end])
    if size is None or curve_end != after:
        raise CertificateRefused("unsupported elliptic curve")
    point, point_end = _enter(der, after, end, 0x03)
    if point_end - point != 2 + 2 * size or der[point : point + 2] != b"\0\4":
        raise CertificateRefused("failed to unmarshal elliptic curve point")


def check_message(body: bytes, version: int) -> None:
    """Raise CertificateRefused unless all certificates of a handshake message are allowed."""
    if len(body) > OF_SERVERS:
        raise CertificateRefused(f"more than {OF_SERVERS} bytes of certificates")
    position = 1 + body[0] if version == _TLS13 and body else 0
    position += 3
    count = 0
    while position < len(body):
        end = position + 3 + int.from_bytes(body[position : position + 3], "big")
        count += 1
        if end > len(body) or count > MOST:
            raise CertificateRefused(f"more than {MOST} certificates" if count > MOST else "a certificate is cut off")
        check(body[position + 3 : end])
        position = end
        if version == _TLS13:
            position += 2 + int.from_bytes(body[position : position + 2], "big")


def _enter(der: bytes, position: int, end: int, tag: int) -> tuple[int, int]:
    """Return where the content of an element begins and ends."""
    if position + 2 > end or der[position] != tag:
        raise CertificateRefused("malformed certificate")
    length, position = der[position + 1], position + 2
    if length >= 0x80:
        count = length & 0x7F
        length = int.from_bytes(der[position : position + count], "big")
        if not 1 <= count <= 3 or length < 0x80 or length >> 8 * (count - 1) == 0:
            raise CertificateRefused("malformed certificate")
        position += count
    if position + length > end:
        raise CertificateRefused("malformed certificate")
    return position, position + length


def _limit(context: ssl.SSLContext, size: int) -> None:
    found = openssl.settings_pointer(context)
    if found is None:
        return
    library, pointer = found
    library.SSL_CTX_ctrl(pointer, _SET_MAX_CERT_LIST, size, None)
    library.SSL_CTX_set_msg_callback(pointer, ctypes.cast(_callback, ctypes.c_void_p))
    if ssl.OPENSSL_VERSION_INFO >= (3, 2):
        context.options |= _NO_RX_COMPRESSION


def _inspect(sent: int, version: int, kind: int, buffer: int, size: int, connection: int, _argument: int) -> None:
    """Check the handshake message at `buffer`. ctypes drops exceptions, so each makes the message invalid."""
    if sent or kind != _HANDSHAKE or size < _HEADER:
        return
    try:
        message = ctypes.string_at(buffer, 1)[0]
        if message == _CERTIFICATE:
            check_message(ctypes.string_at(buffer + _HEADER, size - _HEADER), version)
        elif message == _COMPRESSED_CERTIFICATE:
            raise CertificateRefused("compressed certificates")
        elif message == _FINISHED and (library := openssl.library()) is not None:
            library.SSL_set_msg_callback(connection, None)
    except BaseException as error:
        ctypes.memset(buffer + _HEADER, 0xFF, min(size - _HEADER, 4))
        log.debug("a peer's certificates are refused: %s", error)


step_limit.unstopped.add(_inspect.__code__)  # a step that begins here would continue unchecked
_callback = ctypes.CFUNCTYPE(
    None,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
)(_inspect)
