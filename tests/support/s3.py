"""A service with S3's requests that snapshots need, which checks signatures by the published algorithm with code of its own."""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import unquote
from xml.sax.saxutils import escape

from aiohttp import web

from tests.support.https import authority, served

KEY, SECRET, REGION = "AKIDTEST", "secret/with+signs=", "eu-test-1"
PAGE = 2
"""Objects of a page: lists have several."""
_AUTHORIZATION = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/s3/aws4_request,SignedHeaders=([a-z0-9;-]+),Signature=([0-9a-f]{64})"
)


@dataclass
class Bucket:
    """The objects of a bucket with their metadata; `failures` are statuses of the next responses."""

    objects: dict[str, tuple[bytes, dict[str, str]]] = field(default_factory=dict)
    failures: list[int] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    port: int = 0


def _mac(key: bytes, text: str) -> bytes:
    return hmac.digest(key, text.encode(), "sha256")


def _problem(request: web.Request, body: bytes) -> str:
    """Return the code of the error of a request whose signature is not right."""
    found = _AUTHORIZATION.fullmatch(request.headers.get("Authorization", ""))
    if found is None or found[1] != KEY:
        return "InvalidAccessKeyId"
    _, day, region, names, signature = found.groups()
    if region != REGION:
        return "AuthorizationHeaderMalformed"
    time = request.headers["x-amz-date"]
    moment = datetime.strptime(time, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if abs(datetime.now(UTC) - moment) > timedelta(minutes=15) or not time.startswith(day):
        return "RequestTimeTooSkewed"
    digest = request.headers["x-amz-content-sha256"]
    if digest != hashlib.sha256(body).hexdigest():
        return "XAmzContentSHA256Mismatch"
    unsigned = {h.lower() for h in request.headers if h.lower().startswith("x-amz-")} - {*names.split(";")}
    if unsigned or "host" not in names.split(";"):
        return "AccessDenied"
    path, _, query = request.raw_path.partition("?")
    headers = "".join(f"{name}:{request.headers[name].strip()}\n" for name in names.split(";"))
    text = "\n".join([request.method, path, "&".join(sorted(query.split("&"))), headers, names, digest])
    key = _mac(_mac(_mac(_mac(f"AWS4{SECRET}".encode(), day), region), "s3"), "aws4_request")
    scope = f"{day}/{region}/s3/aws4_request"
    signed = "\n".join(["AWS4-HMAC-SHA256", time, scope, hashlib.sha256(text.encode()).hexdigest()])
    return "" if hmac.compare_digest(_mac(key, signed).hex(), signature) else "SignatureDoesNotMatch"


def _error(status: int, code: str) -> web.Response:
    text = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code><Message>refused: {code}</Message></Error>'
    return web.Response(status=status, text=text, content_type="application/xml")


def _listed(bucket: Bucket, request: web.Request) -> web.Response:
    prefix, token = request.query.get("prefix", ""), request.query.get("continuation-token", "")
    keys = [key for key in sorted(bucket.objects) if key.startswith(prefix) and key > unquote(token)]
    contents = "".join(
        f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
        f"<Size>{len(bucket.objects[key][0])}</Size></Contents>"
        for key in keys[:PAGE]
    )
    more = len(keys) > PAGE
    rest = f"<NextContinuationToken>{escape(keys[PAGE - 1])}</NextContinuationToken>" if more else ""
    text = (
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(more).lower()}</IsTruncated>{contents}{rest}</ListBucketResult>"
    )
    return web.Response(text=text, content_type="application/xml")


def _handler(name: str, bucket: Bucket) -> Callable[[web.Request], object]:
    async def handle(request: web.Request) -> web.Response:
        body = await request.read()
        bucket.requests.append(request.method)
        if bucket.failures:
            return _error(bucket.failures.pop(0), "InternalError")
        if problem := _problem(request, body):
            return _error(403, problem)
        _, found, key = (
            unquote(request.raw_path.partition("?")[0]).split("/", 2)
            if request.path.count("/") > 1
            else (
                "",
                request.path[1:],
                "",
            )
        )
        if found != name:
            return _error(404, "NoSuchBucket")
        if not key:
            return _listed(bucket, request)
        if request.method == "PUT":
            metadata = {k.lower(): v for k, v in request.headers.items() if k.lower().startswith("x-amz-meta-")}
            bucket.objects[key] = (body, metadata)
            return web.Response()
        if request.method == "DELETE":
            bucket.objects.pop(key, None)
            return web.Response(status=204)
        if key not in bucket.objects:
            return _error(404, "NoSuchKey")
        content, metadata = bucket.objects[key]
        return web.Response(body=content, headers=metadata)

    return handle


@contextlib.asynccontextmanager
async def s3_service(folder: Path, name: str = "backups") -> AsyncIterator[Bucket]:
    """Serve a bucket by HTTPS on 127.0.0.1; the CA is s3-ca.crt in the folder, the access key credentials."""
    bucket = Bucket()
    (folder / "s3-ca.crt").write_bytes(authority(folder, "s3"))
    credentials = folder / "credentials"
    credentials.touch(0o600)
    credentials.write_text(f"[default]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n")
    application = web.Application(client_max_size=1 << 26)
    application.router.add_route("*", "/{tail:.*}", _handler(name, bucket))  # type: ignore[arg-type]
    async with served(application, folder, "s3") as port:
        bucket.port = port
        yield bucket
