"""Signed requests to an S3 service (s3_signature.py) over aiohttp, repeated twice if the network or the service fails.

Nothing here logs or prints the key.
"""

from __future__ import annotations

import configparser
import contextlib
import os
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from aiohttp.helpers import get_env_proxy_for_url
from yarl import URL

from kube import tls_settings
from kube.clock import SYSTEM, Clock
from wherry import s3_documents
from wherry.errors import WherryError
from wherry.s3_signature import EMPTY, Key, canonical_query, escaped, sign
from wherry.snapshot_options import SnapshotOptions

ATTEMPTS, FIRST_PAUSE = 3, 1.0
CONNECT_SECONDS = 10.0
PIECE = 1 << 20
DOCUMENT_BYTES, ERROR_BYTES = 8 << 20, 64 << 10
"""Bytes of a list's page, and of an error."""
REASON_CHARACTERS = 500
"""Characters of an error that are reported and logged."""
Found = TypeVar("Found")


class S3Error(WherryError):
    """A request failed for good."""


class _RetryError(Exception):
    """A request failed and may succeed later."""


def read_key(path: Path) -> Key:
    """Read the access key from a file in the form of ~/.aws/credentials, of which the section may be missing."""
    try:
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & 0o007:
                raise S3Error(f"{path}: other accounts may read it: `chmod 600 {path}`")
            text = file.read(1 << 16)
    except (OSError, UnicodeDecodeError) as error:
        raise S3Error(f"{path} cannot be read: {getattr(error, 'strerror', '') or 'it is not UTF-8'}") from error
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text if text.lstrip().startswith("[") else f"[default]\n{text}")
        section = parser["default"]
        return Key(section["aws_access_key_id"], section["aws_secret_access_key"], section.get("aws_session_token", ""))
    except (configparser.Error, KeyError):  # their messages may contain the secret
        raise S3Error(f"{path}: write `aws_access_key_id = ID` and `aws_secret_access_key = SECRET` into it") from None


class Requests:
    """A connection to the bucket of the options."""

    def __init__(self, options: SnapshotOptions, key: Key, session: aiohttp.ClientSession, clock: Clock) -> None:
        self.options, self.clock = options, clock
        self._key, self._session = key, session
        self._host = URL(options.url, encoded=True).raw_authority

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, options: SnapshotOptions, clock: Clock = SYSTEM) -> AsyncIterator[Requests]:
        """Read the key, and connect with the first request; raises S3Error."""
        key = read_key(options.credentials)
        try:
            context = tls_settings.unchecked() if options.insecure else tls_settings.verifying(options.ca or None)
        except (OSError, ValueError, ssl.SSLError) as error:
            raise S3Error(f"{options.ca or 'the CAs of the machine'} cannot be used: {error}") from error
        timeout = aiohttp.ClientTimeout(total=options.timeout, sock_connect=CONNECT_SECONDS)
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False) as session:
            yield cls(options, key, session, clock)

    async def repeated(self, attempt: Callable[[], Awaitable[Found]]) -> Found:
        """Return what an attempt returns, the third one at the latest; raises S3Error."""
        pause = FIRST_PAUSE
        for _ in range(ATTEMPTS - 1):
            try:
                return await attempt()
            except _RetryError:
                await self.clock.sleep(pause)
                pause *= 2
        try:
            return await attempt()
        except _RetryError as error:
            raise S3Error(str(error)) from error.__cause__

    @contextlib.asynccontextmanager
    async def send(
        self,
        method: str,
        name: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        digest: str = EMPTY,
        body: AsyncIterator[bytes] | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Send a request for an object of the folder, or with the name "" for the bucket; yield a response of 2xx.

        Raises S3Error, and within `repeated` an error that repeats it.
        """
        options = self.options
        path = "/" + escaped(options.bucket)
        if name:
            path += "/" + escaped(options.prefix + name, safe="/")
        signed = sign(
            self._key,
            options.region,
            self.clock.now(),
            method,
            self._host,
            path,
            query or {},
            headers or {},
            digest,
        )
        signed |= {"Host": self._host, "Accept-Encoding": "identity"}
        what = f"{method} {options.url}{path}"
        url = URL(f"{options.url}{path}" + (f"?{canonical_query(query)}" if query else ""), encoded=True)
        try:
            async with self._session.request(
                method, url, headers=signed, data=body, allow_redirects=False, **_proxy(url)
            ) as response:
                if not 200 <= response.status < 300:
                    raise await _error(what, response)
                yield response
        except TimeoutError as error:
            raise _RetryError(f"{what}: it was not complete within {options.timeout} s") from error
        except aiohttp.ClientConnectorCertificateError as error:
            raise S3Error(f"{what}: {error}; --snapshot-s3-ca names the CA of the service") from error
        except aiohttp.ClientError as error:
            raise _RetryError(f"{what}: {error}") from error


def _proxy(url: URL) -> dict[str, Any]:
    """Return the proxy of the environment. With aiohttp's `trust_env`, ~/.netrc would add credentials to signed requests."""
    try:
        proxy, auth = get_env_proxy_for_url(url)
    except LookupError:
        return {}
    return {"proxy": proxy, "proxy_headers": {"Proxy-Authorization": auth.encode()} if auth else None}


async def _error(what: str, response: aiohttp.ClientResponse) -> Exception:
    """Return the error of a response."""
    try:
        code, message = s3_documents.error(await document(response, ERROR_BYTES))
    except S3Error:  # no error of S3 is as large
        code, message = "", ""
    if 300 <= response.status < 400:
        message = message or "the bucket is in another region"
    reason = f"{code or response.reason or ''}{': ' if message else ''}{message}"
    text = f"{what}: {response.status} {reason[:REASON_CHARACTERS]}"
    return _RetryError(text) if response.status >= 500 or code == "SlowDown" else S3Error(text)


async def document(response: aiohttp.ClientResponse, most: int = DOCUMENT_BYTES) -> bytes:
    """Return the body of a response; raises S3Error if it has more bytes than `most`."""
    found = bytearray()
    async for piece in response.content.iter_chunked(PIECE):
        found += piece
        if len(found) > most:
            raise S3Error(f"{response.url.host} sent more than {most >> 10} KiB instead of a document")
    return bytes(found)
