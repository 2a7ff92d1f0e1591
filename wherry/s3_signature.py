"""Signature Version 4 of AWS, as S3 services check it: pure functions of a request, a key and a time.

Source: "Authenticating Requests (AWS Signature Version 4)" in the Amazon S3 API reference. The hash of the body is signed too,
so a service that accepts a request has received the bytes that were sent.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import quote

ALGORITHM = "AWS4-HMAC-SHA256"
EMPTY = hashlib.sha256(b"").hexdigest()
"""Hash of an empty body."""


@dataclass(frozen=True, slots=True)
class Key:
    """An access key; `token` belongs to a temporary one."""

    id: str
    secret: str = field(repr=False)
    token: str = field(default="", repr=False)


def escaped(text: str, safe: str = "") -> str:
    """Escape all characters of a path or query but the unreserved ones."""
    return quote(text, safe="-._~" + safe)


def canonical_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{escaped(name)}={escaped(value)}" for name, value in sorted(query.items()))


def sign(
    key: Key,
    region: str,
    now: datetime,
    method: str,
    host: str,
    path: str,
    query: Mapping[str, str],
    headers: Mapping[str, str],
    digest: str = EMPTY,
) -> dict[str, str]:
    """Return the headers to send: the given ones, all signed, with those of the signature.

    `path` is escaped already, `digest` the SHA-256 of the body in hexadecimal digits. The host is signed and not returned.
    """
    time = f"{now.astimezone(UTC):%Y%m%dT%H%M%SZ}"
    sent = {**headers, "x-amz-content-sha256": digest, "x-amz-date": time}
    if key.token:
        sent["x-amz-security-token"] = key.token
    signed = {name.lower(): " ".join(value.split()) for name, value in {**sent, "host": host}.items()}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    request = "\n".join([method, path, canonical_query(query), lines, names, digest])
    scope = f"{time[:8]}/{region}/s3/aws4_request"
    text = "\n".join([ALGORITHM, time, scope, hashlib.sha256(request.encode()).hexdigest()])
    signature = hmac.new(_derived(key, time[:8], region), text.encode(), hashlib.sha256).hexdigest()
    return {
        **sent,
        "Authorization": f"{ALGORITHM} Credential={key.id}/{scope},SignedHeaders={names},Signature={signature}",
    }


def _derived(key: Key, day: str, region: str) -> bytes:
    """Return the key of a day, region and service."""
    found = f"AWS4{key.secret}".encode()
    for part in (day, region, "s3", "aws4_request"):
        found = hmac.new(found, part.encode(), hashlib.sha256).digest()
    return found
