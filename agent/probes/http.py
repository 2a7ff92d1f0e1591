"""The httpGet probe (upstream: pkg/probe/http): any status from 200 to 399 is a success.

Certificates are not verified, proxies not used, connections not kept. Redirects are followed while they stay on the same host;
one that leads away ends the probe with a warning, so that a container cannot send the kubelet elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit

import aiohttp

from agent import host_lookups
from agent.probes.http_errors import wording
from agent.probes.result import Result, Target, Verdict, errored, failure, success
from kube.api import core_v1

_MAX_REDIRECTS = 10
_MAX_BODY = 10 << 10
_REDIRECTS = (301, 302, 303, 307, 308)
_UNDECODED = re.compile("[\udc80-\udcff]")
"""Bytes of a header that are not UTF-8, as aiohttp hands them over; text with them cannot be sent on."""

USER_AGENT = "kube-probe/1.36"


class HTTPProber:
    """Sends probes: those to addresses share a client session, one to a name has a session that resolves it for its pod."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def probe(self, probe: core_v1.Probe, target: Target) -> Result:
        """GET what an httpGet probe names."""
        action = probe.http_get
        assert action is not None
        try:
            url = url_of(action, target)
        except LookupError as error:
            return errored(str(error))
        headers, timeout = headers_of(action.http_headers), probe.timeout_seconds or 1
        try:
            host = urlsplit(url).hostname or ""
        except ValueError as error:
            return errored(f'parse "{url}": {error}')
        if host_lookups.is_address(host):
            if self._session is None:
                self._session = _session(aiohttp.TCPConnector(force_close=True, limit=0, ssl=False))
            return await _get(self._session, url, host, headers, timeout)
        async with _session(host_lookups.connector(target.owner, ssl=False)) as session:
            return await _get(session, url, host, headers, timeout)

    async def close(self) -> None:
        """Close the session."""
        if self._session is not None:
            await self._session.close()
            self._session = None


def _session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        skip_auto_headers=("Accept-Encoding", "User-Agent", "Accept"),
        auto_decompress=False,
    )


async def _get(session: aiohttp.ClientSession, url: str, host: str, headers: dict[str, str], timeout: float) -> Result:
    """GET a URL; seconds. A redirect that cannot be read is the container's failure, as any other of its answers."""
    for _ in range(_MAX_REDIRECTS):
        try:
            status, location, body = await _request(session, url, headers, timeout)
        except TimeoutError:
            late = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
            return failure(f'Get "{url}": {late}')
        except (aiohttp.ClientError, ValueError) as error:
            return failure(f'Get "{url}": {wording(error, urlsplit(url))}')
        if status in _REDIRECTS and location:
            try:
                moved = urljoin(url, location)
                stays = urlsplit(moved).hostname == host
            except ValueError as error:
                said = f"failed to parse Location header {json.dumps(location)}: {error}"
                return failure(f'Get "{url}": {said}')
            if stays:
                url = moved
                continue
        if not 200 <= status < 400:
            return failure(f"HTTP probe failed with statuscode: {status}")
        if status >= 300:
            return Result(Verdict.WARNING, f"Probe terminated redirects, Response body: {body}")
        return success(body)
    return failure(f'Get "{url}": stopped after {_MAX_REDIRECTS} redirects')


async def _request(
    session: aiohttp.ClientSession, url: str, headers: dict[str, str], timeout: float
) -> tuple[int, str, str]:
    limit = aiohttp.ClientTimeout(total=timeout)
    async with session.get(url, headers=headers, allow_redirects=False, timeout=limit) as answer:
        body = await answer.content.read(_MAX_BODY)
        location = _UNDECODED.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", answer.headers.get("Location", ""))
        return answer.status, location, body.decode(errors="replace")


def url_of(action: core_v1.HTTPGetAction, target: Target) -> str:
    """Form the URL of an httpGet action. Raise LookupError for a port name that the container does not have."""
    scheme = (action.scheme or "HTTP").lower()
    host = action.host or target.pod_ip
    host = f"[{host}]" if ":" in host else host
    path = action.path or "/"
    return f"{scheme}://{host}:{target.port(action.port)}{path if path.startswith('/') else '/' + path}"


def headers_of(wanted: Iterable[core_v1.HTTPHeader]) -> dict[str, str]:
    """Return the request's headers; an empty value given for User-Agent or Accept leaves the header out."""
    headers = {"User-Agent": USER_AGENT, "Accept": "*/*"}
    for header in wanted:
        name = "-".join(part.capitalize() for part in header.name.split("-"))
        if name in ("User-Agent", "Accept") and not header.value:
            headers.pop(name, None)
        else:
            headers[name] = header.value
    return headers
