"""Authorities that users name, as bundles of PEM certificates in API objects (`caBundle`).

OpenSSL decodes all keys of a bundle, and adds each certificate to a list that it sorts again: 0.4 s for one explicit elliptic
curve, 3 s for 4000 small certificates, while it holds the interpreter lock. So the members are checked first, as a peer's
certificates are (`kube/peer_certificates.py`), limited in number, and added one by one, in a thread, which gives others the
lock between two. Go's AppendCertsFromPEM likewise skips what it cannot parse; the messages are those of client-go's transport
(rest.TLSConfigFor).
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
import ssl

from kube import peer_certificates, tls_settings

MOST = 1000
"""Certificates of a bundle. The machine's authorities are 140."""
LARGEST = peer_certificates.OF_SERVERS
"""Bytes of a certificate."""
_UNPARSED = "unable to load root certificates: unable to parse bytes as PEM block"
_INVALID = "unable to load root certificates: no valid certificate authority data seen"
_BEGIN, _END = b"-----BEGIN CERTIFICATE-----", b"-----END CERTIFICATE-----"
_SPACE = re.compile(rb"\s+")


def verifying(bundle: str) -> ssl.SSLContext:
    """Return the settings of a client that verifies servers by a bundle, base64 of PEM, or by the machine's authorities.

    Takes up to half a second of a thread's time. Raises ValueError if the bundle has no usable certificate, or too many.
    """
    if not bundle:
        return tls_settings.verifying()
    context: ssl.SSLContext | None = None
    for certificate in certificates(bundle):
        with contextlib.suppress(ssl.SSLError):
            if context is None:
                context = tls_settings.verifying(cadata=certificate)
            else:
                context.load_verify_locations(cadata=certificate)
    if context is None:
        raise ValueError(_INVALID)
    return context


def certificates(bundle: str) -> list[bytes]:
    """Return the DER of those certificates of a bundle that are cheap to decode, each once."""
    try:
        text = base64.b64decode(bundle)
    except binascii.Error as error:
        raise ValueError(_UNPARSED) from error
    if text.count(_BEGIN) > MOST:
        raise ValueError(f"the CA bundle has more than {MOST} certificates: remove some")
    found: dict[bytes, None] = {}
    position = text.find(_BEGIN)
    if position < 0:
        raise ValueError(_UNPARSED)
    while position >= 0:
        position += len(_BEGIN)
        end = text.find(_END, position)
        if end < 0:
            break
        if end - position < 2 * LARGEST:
            with contextlib.suppress(ValueError):
                der = base64.b64decode(_SPACE.sub(b"", text[position:end]), validate=True)
                peer_certificates.check(der)
                found[der] = None
        position = text.find(_BEGIN, end)
    return list(found)
