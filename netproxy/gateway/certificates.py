"""TLS settings from Secrets: a certificate for each hostname, selected by the server name of the handshake.

A handshake without a server name, or with one that no listener has, gets the certificate of the listener without hostname; if
there is none, it fails. Private keys are given to OpenSSL without a file on disk.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from kube import peer_certificates, tls_settings
from kube.gateway import private_keys
from netproxy.gateway.errors import Refused
from netproxy.gateway.listener_table import suffixes
from netproxy.gateway.protocol import SERVER_NAME
from netproxy.gateway.request_target import parse_host

MOST_BYTES = 256 << 10
"""Bytes of a certificate chain and of a key."""


class CertificateError(ValueError):
    """A Secret has no certificate that can be served."""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A certificate and its key as PEM, and the kind of the key: OpenSSL serves one certificate of each."""

    kind: str
    pem: bytes


def context_with(certificates: Sequence[Parsed]) -> ssl.SSLContext:
    """Return TLS settings with certificates, one of each kind of key; CertificateError if one cannot be used."""
    context = settings()
    try:
        for each in certificates:
            _load(context, each.pem)
    except (ValueError, OSError) as error:  # ssl.SSLError is an OSError
        raise CertificateError(f"the certificate cannot be used: {error}") from error
    return context


def parse(data: Mapping[str, str]) -> Parsed:
    """Return the certificate in the data of a Secret of type kubernetes.io/tls; CertificateError if it cannot be used."""
    try:
        return _checked(data)
    except CertificateError:
        raise
    except (ValueError, OSError) as error:
        raise CertificateError(f"the certificate cannot be used: {error}") from error


def _checked(data: Mapping[str, str]) -> Parsed:
    """Check a certificate and its key. The controller has checked the key; a node does not rely on that."""
    try:
        chain, key = (base64.b64decode(data[name], validate=True) for name in ("tls.crt", "tls.key"))
    except (KeyError, binascii.Error) as error:
        raise CertificateError("tls.crt or tls.key is missing or no base64") from error
    if len(chain) > MOST_BYTES or len(key) > MOST_BYTES:
        raise CertificateError("the certificate or its key is too large")
    certificates = x509.load_pem_x509_certificates(chain)
    if len(certificates) > peer_certificates.MOST:
        raise CertificateError(f"more than {peer_certificates.MOST} certificates")
    try:
        private = private_keys.decode(key)
    except private_keys.KeyRefused as error:
        raise CertificateError(f"tls.key {error}") from error
    shown = b"".join(each.public_bytes(serialization.Encoding.PEM) for each in certificates)
    pem = shown + private_keys.encode(private)  # and nothing else, such as a key between the certificates
    return Parsed(_kind(private), pem)


def _kind(key: private_keys.PrivateKey) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RSA"
    return "EC" if isinstance(key, ec.EllipticCurvePrivateKey) else "Ed25519"


def settings() -> ssl.SSLContext:
    """Return TLS settings without a certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls_settings.apply(context)
    context.set_alpn_protocols(["http/1.1"])
    return context


def _load(context: ssl.SSLContext, pem: bytes) -> None:
    descriptor = os.memfd_create("certificate", os.MFD_CLOEXEC)
    try:
        view = memoryview(pem)
        while view:
            view = view[os.write(descriptor, view) :]
        context.load_cert_chain(f"/proc/self/fd/{descriptor}", password=lambda: b"")
    finally:
        os.close(descriptor)


class ServerNames:
    """The settings of a port's listeners by hostname; `context` selects among them."""

    def __init__(self) -> None:
        self._contexts: dict[str, ssl.SSLContext] = {}
        self.context = settings()
        self.context.sni_callback = self._select

    def set(self, contexts: dict[str, ssl.SSLContext]) -> None:
        """Replace the settings; connections that there are keep theirs."""
        self._contexts = contexts

    def current(self) -> ssl.SSLContext:
        """Return the settings for a new connection."""
        return self.context

    def find(self, name: str) -> ssl.SSLContext | None:
        """Return the settings of a server name."""
        contexts = self._contexts
        if name in contexts:
            return contexts[name]
        for suffix in suffixes(name):
            if suffix in contexts:
                return contexts[suffix]
        return contexts.get("")

    def _select(self, connection: Any, name: str | None, _: ssl.SSLContext) -> int | None:
        """Called by OpenSSL during a handshake, in a thread; a returned number is the alert that ends it."""
        host = ""
        if name:
            with contextlib.suppress(Refused):
                host = parse_host(name)[0]
        found = self.find(host)
        if found is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        connection.context = found
        setattr(connection, SERVER_NAME, host)
        return None
