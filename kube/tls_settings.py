"""TLS versions and cipher suites of the ports that the roles serve, under the names of upstream's flags and files; and the
settings of clients.

`tls-cipher-suites` and `tls-min-version` (kube-apiserver, kube-controller-manager, kube-scheduler) and `tlsCipherSuites`
and `tlsMinVersion` (KubeletConfiguration) take Go's names; OpenSSL has names of its own. As in Go, the suites of TLS 1.3
cannot be chosen: a list holds for TLS 1.2 alone, and one without a suite of TLS 1.2 leaves TLS 1.3. The default is
stricter than Go's, which has four suites in CBC mode besides.
"""

from __future__ import annotations

import functools
import ssl
from collections.abc import Sequence
from pathlib import Path

from kube import openssl, peer_certificates, tls_groups

TLS13 = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
STRONG = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
}
"""Go name -> OpenSSL name of the suites with forward secrecy and authenticated encryption: the default for TLS 1.2."""
SUITES = {
    **STRONG,
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}
INSECURE = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA": "ECDHE-ECDSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA": "ECDHE-RSA-RC4-SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA": "ECDHE-RSA-DES-CBC3-SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA": "DES-CBC3-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_RC4_128_SHA": "RC4-SHA",
}
"""Cipher suites that Go calls insecure: used if the machine's OpenSSL still has them, with a warning in the log."""
VERSIONS = {"VersionTLS12": ssl.TLSVersion.TLSv1_2, "VersionTLS13": ssl.TLSVersion.TLSv1_3}
_SET_MODE, _NO_AUTO_CHAIN = 33, 0x8
_TOO_OLD = ("VersionTLS10", "VersionTLS11")


def check_version(name: str) -> str:
    """Return the name of a minimum version, the default for an empty one; ValueError where it is not available."""
    if name in _TOO_OLD:
        raise ValueError("TLS 1.2 and 1.3 are served: VersionTLS12 or VersionTLS13")
    if name and name not in VERSIONS:
        raise ValueError(f'unknown tls version "{name}"')
    return name or "VersionTLS12"


def check_suites(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of cipher suites; ValueError names one that Go or the machine's OpenSSL does not have."""
    for name in names:
        if name in TLS13:
            continue
        translated = SUITES.get(name) or INSECURE.get(name)
        if translated is None:
            raise ValueError(f"Cipher suite {name} not supported or doesn't exist")
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(translated)
        except ssl.SSLError as error:
            raise ValueError(f"Cipher suite {name}: this machine's OpenSSL does not have it") from error
    return tuple(names)


def warnings(suites: Sequence[str], minimum: str) -> list[str]:
    """Return what is unwise or without effect in the settings, a sentence each."""
    found = [f"cipher suite {name} is insecure" for name in suites if name in INSECURE]
    if suites and minimum == "VersionTLS13":
        found.append("the cipher suites of TLS 1.3 cannot be chosen: the list of cipher suites has no effect")
    return found


def apply(context: ssl.SSLContext, suites: Sequence[str] = (), minimum: str = "") -> None:
    """Set the minimum version and the cipher suites of TLS 1.2; ValueError as the two checks.

    Clients of Kubernetes keep connections and do not resume sessions: no tickets, which would be a third of a handshake's cost.
    The certificates of the file are sent as they are, as by Go: OpenSSL would otherwise look for their issuers among the
    authorities of clients, a quarter of the cost of the server's first message.
    """
    version = VERSIONS[check_version(minimum)]
    chosen = [{**SUITES, **INSECURE}[name] for name in check_suites(suites) if name not in TLS13]
    if suites and not chosen:
        version = ssl.TLSVersion.TLSv1_3
    context.minimum_version = version
    context.set_ciphers(":".join(dict.fromkeys(chosen or STRONG.values())))
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.num_tickets = 0
    if (found := openssl.settings_pointer(context)) is not None:
        library, pointer = found
        library.SSL_CTX_ctrl(pointer, _SET_MODE, _NO_AUTO_CHAIN, None)
    tls_groups.limit(context, tls_groups.SERVED)
    peer_certificates.limit_clients(context)


def _limit_client(context: ssl.SSLContext, request: int = peer_certificates.REQUEST) -> None:
    """Offer elliptic curves alone, as Go's clients: a server could choose a DHE group that takes seconds to compute.

    `request`: bytes of a server's request for a certificate.
    """
    context.set_ciphers(":".join(dict.fromkeys(SUITES.values())))
    tls_groups.limit(context, tls_groups.OFFERED)
    peer_certificates.limit_servers(context, request)


def verifying(cafile: str | Path | None = None, cadata: str | bytes | None = None) -> ssl.SSLContext:
    """Return the settings of a client that verifies servers by these authorities, or by the machine's without any.

    Raises ssl.SSLError and ValueError where the authorities cannot be read, OSError where the file cannot.
    """
    context = ssl.create_default_context(cafile=None if cafile is None else str(cafile), cadata=cadata)
    _limit_client(context)
    return context


@functools.cache
def unchecked() -> ssl.SSLContext:
    """Return the settings of a client that shows nothing and takes any certificate; `ssl.create_default_context` takes 30 ms.

    That is the time of reading the machine's authorities, which nobody asks here.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    _limit_client(context, peer_certificates.OF_SERVERS)
    return context
