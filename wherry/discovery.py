"""Discovery: establishes trust in a cluster from an address, a token and a hash, as kubeadm.

The document kube-public/cluster-info is read without checking whom it comes from. The token's signature on it then shows
that its writer knows the token, the hash that the CA in it is the one meant; and it is read a second time over TLS checked
with that CA, so that everything after this talks to the cluster and to nobody else.
"""

from __future__ import annotations

import base64
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from kube import bootstrap_tokens, pki
from kube.api import core_v1
from kube.bootstrap_tokens import CLUSTER_INFO, CLUSTER_INFO_NAMESPACE, KUBECONFIG_KEY, SIGNATURE_PREFIX, Token
from kube.client import Response
from kube.clock import SYSTEM, Clock
from kube.errors import StatusError
from kube.kubeconfig import Access
from kube.log_lines import escaped
from kube.server_certificates import NodesCertificate
from kube.transport import HttpsTransport
from kube.urls import host_port
from wherry import value_forms
from wherry.errors import WherryError

PATH = f"/api/v1/namespaces/{CLUSTER_INFO_NAMESPACE}/configmaps/{CLUSTER_INFO}"
CONNECT_SECONDS = 10.0
ANSWER_LIMIT = 2 << 20
"""Maximum number of bytes of the document, which comes from a server that is not verified yet: more than a ConfigMap has."""
SIGNATURE_SECONDS, POLL_SECONDS = 3.0, 0.25
"""Time that a token's signature may take to appear: a token that has just been made is signed in a moment."""
SKEW_SECONDS = 120
"""Maximum clock skew in seconds to the server: certificates are valid from five minutes before they were made."""


@dataclass(frozen=True, slots=True)
class Discovered:
    """The cluster as discovery found it: the server to talk to and the CA to check it with (PEM)."""

    server: str
    ca: bytes


def server_url(text: str) -> str:
    """Return the API server's URL from what was typed; WherryError where it is none."""
    url = text.strip() if "://" in text else f"https://{text.strip()}"
    if not url.startswith("https://") or not value_forms.is_url(url):
        raise WherryError(f"{escaped(text)} is not an API server's address: write it as in https://10.0.0.1:6443")
    parts = urlsplit(url)
    host = parts.hostname or ""
    return f"https://{host_port(host, parts.port or 6443)}"


def ca_pin(text: str) -> str:
    """Check the form of a CA's hash; WherryError where it is none."""
    kind, _, digest = text.partition(":")
    if kind != "sha256" or len(digest) != 64 or set(digest.lower()) - set("0123456789abcdef"):
        raise WherryError(
            "--discovery-token-ca-cert-hash is sha256: and 64 hexadecimal digits, as `wherry up` printed it"
        )
    return text.lower()


async def discover(server: str, token: Token, pin: str, *, clock: Clock = SYSTEM) -> Discovered:
    """Verify the cluster at `server`; raises WherryError with the problem of the server, the token or the hash."""
    end = clock.monotonic() + SIGNATURE_SECONDS
    while True:
        info = await _read(Access(server=server, insecure=True), clock)
        signature = info.data.get(SIGNATURE_PREFIX + token.id)
        if signature is not None or clock.monotonic() > end:
            break
        await clock.sleep(POLL_SECONDS)
    content = info.data.get(KUBECONFIG_KEY, "")
    if signature is None:
        raise WherryError(
            f"the cluster does not know the token {token.id}, or it has expired: `wherry token create "
            "--print-join-command` on the first machine makes another"
        )
    if not bootstrap_tokens.verify(content, signature, token):
        raise WherryError(f"the token's second half is wrong, or {server} is not the cluster that the token is of")
    bundle, pinned = _authorities(content, pin)
    again = await _read(Access(server=server, ca=pinned), clock)
    if again.data.get(KUBECONFIG_KEY) != content:
        raise WherryError(
            f"{server} returned different data without and with a verified certificate: there may be a man-in-the-middle"
        )
    return Discovered(server, bundle)


def _authorities(content: str, pin: str) -> tuple[bytes, bytes]:
    """Return the CAs in the document, and the one whose hash is the one given: by it the others are to be confirmed."""
    try:
        document: Any = yaml.safe_load(content)
        bundle = base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"])
        found = x509.load_pem_x509_certificates(bundle)
    except (yaml.YAMLError, ValueError, LookupError, TypeError, RecursionError) as error:
        raise WherryError("the cluster's discovery document names no CA") from error
    pinned = [certificate for certificate in found if pki.ca_hash(certificate) == pin]
    if not pinned:
        raise WherryError(
            f"the cluster's CA has the hash {pki.ca_hash(found[0])}, not the one given: this is another cluster, or the hash "
            "was copied wrongly"
        )
    return bundle, pinned[0].public_bytes(serialization.Encoding.PEM)


async def _read(access: Access, clock: Clock) -> core_v1.ConfigMap:
    transport = HttpsTransport(access, "wherry")
    try:
        answer = await transport.request("GET", PATH, timeout=CONNECT_SECONDS, most_bytes=ANSWER_LIMIT)
    except StatusError as error:
        raise unreachable(access, error, clock.now()) from error
    finally:
        await transport.close()
    check_clock(answer, clock.now())
    if answer.status != 200:
        raise WherryError(
            f"{access.server} offers nothing to join (status {answer.status} for {CLUSTER_INFO_NAMESPACE}/{CLUSTER_INFO}): "
            "is it the API server of a Wherry cluster that is up?"
        )
    try:
        return msgspec.json.decode(answer.body, type=core_v1.ConfigMap)
    except msgspec.MsgspecError as error:
        raise WherryError(f"{access.server} is not a Kubernetes API server") from error


def check_clock(answer: Response, now: datetime) -> None:
    """Raise WherryError if this machine's clock and the server's are too far apart for certificates to work."""
    text = answer.headers.get("Date", "")
    try:
        server = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return
    if server.tzinfo is None:  # "-0000": UTC (RFC 5322)
        server = server.replace(tzinfo=UTC)
    skew = (now - server).total_seconds()
    if abs(skew) > SKEW_SECONDS:
        way = "ahead of" if skew > 0 else "behind"
        raise WherryError(
            f"this machine's clock is {duration(abs(skew))} {way} the server's ({now:%F %T} here, {server:%F %T} there, "
            "in UTC): set it (timedatectl set-ntp true) and join again"
        )


def duration(seconds: float) -> str:
    """Say a time span in its two largest units."""
    left, parts = int(seconds), []
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min"), (1, "s")):
        count, left = divmod(left, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"


def unreachable(access: Access, error: StatusError, now: datetime) -> WherryError:
    """Return why a server could not be talked to."""
    cause: BaseException | None = error
    while cause is not None:
        cause = getattr(cause, "certificate_error", cause)  # inside of aiohttp's own error
        if isinstance(cause, ssl.SSLCertVerificationError):
            why = cause.verify_message
            if isinstance(cause, NodesCertificate):
                return WherryError(f"{access.server} is not an API server: {why}: join by the address of an API server")
            if "not yet valid" in why or "has expired" in why:
                return WherryError(
                    f"the certificate of {access.server} is not valid at {now:%F %T} UTC ({why}): is a clock wrong?"
                )
            if "ostname" in why or "IP address" in why:
                name = urlsplit(access.server).hostname
                return WherryError(
                    f"the certificate of {access.server} does not name {name}: join by another of the server's addresses, or "
                    f"repeat `wherry up --name {name}` on it"
                )
            return WherryError(f"the certificate of {access.server} is not from the cluster's CA: {why}")
        if isinstance(cause, TimeoutError):
            return WherryError(
                f"no API server answers at {access.server} within {CONNECT_SECONDS:g} s: check the address, and that nothing "
                "on the way blocks the port"
            )
        if isinstance(cause, ssl.SSLError):
            return WherryError(f"what answers at {access.server} does not speak TLS: check address and port")
        cause = getattr(cause, "os_error", None) or cause.__cause__
    return WherryError(f"{error.message}: check the address, and that the server runs")
