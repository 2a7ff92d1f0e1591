"""Probes of ports: responses to a client without credentials, and accepted weak cipher suites."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import itertools
import ssl
import sys
from pathlib import Path
from urllib.parse import urlsplit

from cryptography import x509

from kube import peer_certificates, tls_settings
from kube.urls import bracketed
from wherry.security.facts import EtcdPort, Listening

SECONDS = 5.0
_LISTEN = "0A"
_WEAK = "ALL:COMPLEMENTOFALL:!" + ":!".join(tls_settings.STRONG.values()) + ":@SECLEVEL=0"


def anybody() -> ssl.SSLContext:
    """Return TLS settings of a client without credentials; it sends no secrets, so it does not verify the server."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    peer_certificates.limit_servers(context)
    return context


async def status(host: str, port: int, path: str, context: ssl.SSLContext | None, headers: str = "") -> int:
    """Return the HTTP status of a GET, 0 without a response."""
    with contextlib.suppress(OSError, ValueError, IndexError, asyncio.IncompleteReadError):
        async with asyncio.timeout(SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                writer.write(
                    f"GET {path} HTTP/1.1\r\nHost: {bracketed(host)}\r\nConnection: close\r\n{headers}\r\n".encode()
                )
                return int((await reader.readline()).split()[1])
            finally:
                writer.close()
    return 0


async def weak_suite(host: str, port: int) -> str:
    """Return the cipher suite that a port takes of all but the strong ones, "" where it takes none."""
    context = anybody()
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(_WEAK)
    with contextlib.suppress(OSError):
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            try:
                found = writer.get_extra_info("cipher")
                return f"{found[1]} {found[0]}" if found else ""
            finally:
                writer.close()
    return ""


async def etcd_port(url: str, authority: str) -> EtcdPort:
    """Probe one of etcd's ports without a client certificate."""
    parts = urlsplit(url)
    if parts.scheme != "https":
        return EtcdPort(url, encrypted=False, open_to_all=True)
    host, port = parts.hostname or "", parts.port or 2379
    answer = await status(host, port, "/version", anybody())
    self_signed = False
    with contextlib.suppress(OSError, ValueError):
        async with asyncio.timeout(SECONDS):
            _, writer = await asyncio.open_connection(host, port, ssl=anybody())
            shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            writer.close()
            certificate = x509.load_der_x509_certificate(shown)
            self_signed = certificate.issuer == certificate.subject
    trusted = False
    with contextlib.suppress(OSError):
        async with asyncio.timeout(SECONDS):
            context = tls_settings.verifying(cafile=authority or None)
            _, writer = await asyncio.open_connection(host, port, ssl=context)
            writer.close()
            trusted = True
    return EtcdPort(url, encrypted=True, trusted=trusted, self_signed=self_signed, open_to_all=answer != 0)


def listening(daemon: str, pid: int) -> list[Listening]:
    """Return the TCP ports that a process listens on, from the kernel's tables of its network."""
    inodes = set()
    with contextlib.suppress(OSError):
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(str(handle.readlink()))
    found = []
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/net/{table}") as lines:
            for line in itertools.islice(lines, 1, None):
                fields = line.split()
                if fields[3] == _LISTEN and f"socket:[{fields[9]}]" in inodes:
                    address, _, port = fields[1].rpartition(":")
                    found.append(Listening(daemon, _address(address), int(port, 16)))
    return found


def _address(text: str) -> str:
    """Read an address of the kernel's tables: words of 32 bits in the machine's own order."""
    words = [bytes.fromhex(text[at : at + 8]) for at in range(0, len(text), 8)]
    if sys.byteorder == "little":
        words = [word[::-1] for word in words]
    address = ipaddress.ip_address(b"".join(words))
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
