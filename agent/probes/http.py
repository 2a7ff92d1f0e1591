"""The httpGet probe (upstream: pkg/probe/http): any status from 200 to 399 is a success.

Certificates are not verified, proxies not used, connections not kept. Redirects are followed while they stay on the same host;
one that leads away ends the probe with a warning, so that a container cannot send the kubelet elsewhere.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from urllib.parse import urljoin, urlsplit

from agent import http_get
from agent.probes.http_errors import wording
from agent.probes.result import Result, Target, Verdict, errored, failure, success
from agent.threads import Owner
from kube import tls_settings
from kube.api import core_v1

_MAX_REDIRECTS = 10
_MAX_BODY = 10 << 10
_REDIRECTS = (301, 302, 303, 307, 308)
_UNDECODED = re.compile("[\udc80-\udcff]")

USER_AGENT = "kube-probe/1.36"


class HTTPProber:
    """Makes httpGet probes."""

    async def probe(self, probe: core_v1.Probe, target: Target) -> Result:
        """GET what an httpGet probe names; its timeout is that of all redirects together, as upstream's."""
        action = probe.http_get
        assert action is not None
        try:
            url = url_of(action, target)
        except LookupError as error:
            return errored(str(error))
        try:
            host = urlsplit(url).hostname or ""
        except ValueError as error:
            return errored(f'parse "{url}": {error}')
        deadline = asyncio.get_running_loop().time() + (probe.timeout_seconds or 1)
        return await _get(url, host, headers_of(action.http_headers, USER_AGENT), target.owner, deadline)


async def _get(url: str, host: str, headers: dict[str, str], owner: Owner, deadline: float) -> Result:
    """GET a URL. A redirect that cannot be read is the container's failure, as any other of its answers."""
    for _ in range(_MAX_REDIRECTS):
        try:
            answer = await http_get.get(url, headers, owner, tls_settings.unchecked(), deadline, _MAX_BODY)
        except (http_get.BodyTimeoutError, http_get.BodyError) as error:
            return failure(str(error))
        except TimeoutError as error:
            return failure(f'Get "{url}": {error}')
        except (http_get.ConnectError, http_get.AnswerError, OSError, EOFError, ValueError) as error:
            return failure(f'Get "{url}": {wording(error, urlsplit(url))}')
        if answer.status in _REDIRECTS and answer.location:
            location = _text(answer.location)
            try:
                moved = urljoin(url, location)
                stays = urlsplit(moved).hostname == host
            except ValueError as error:
                said = f"failed to parse Location header {json.dumps(location)}: {error}"
                return failure(f'Get "{url}": {said}')
            if stays:
                url = moved
                continue
        body = answer.body.decode(errors="replace")
        if not 200 <= answer.status < 400:
            return failure(f"HTTP probe failed with statuscode: {answer.status}")
        if answer.status >= 300:
            return Result(Verdict.WARNING, f"Probe terminated redirects, Response body: {body}")
        return success(body)
    return failure(f'Get "{url}": stopped after {_MAX_REDIRECTS} redirects')


def _text(location: bytes) -> str:
    """Decode a header; what is not UTF-8 is percent-encoded, for text with it could not be sent on."""
    decoded = location.decode(errors="surrogateescape")
    return _UNDECODED.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", decoded)


def url_of(action: core_v1.HTTPGetAction, target: Target) -> str:
    """Form the URL of an httpGet action. Raise LookupError for a port name that the container does not have."""
    scheme = (action.scheme or "HTTP").lower()
    host = action.host or target.pod_ip
    host = f"[{host}]" if ":" in host else host
    path = action.path or "/"
    return f"{scheme}://{host}:{target.port(action.port)}{path if path.startswith('/') else '/' + path}"


def headers_of(wanted: Iterable[core_v1.HTTPHeader], user_agent: str) -> dict[str, str]:
    """Return the request's headers; an empty value given for User-Agent or Accept leaves the header out."""
    headers = {"User-Agent": user_agent, "Accept": "*/*"}
    for header in wanted:
        name = "-".join(part.capitalize() for part in header.name.split("-"))
        if name in ("User-Agent", "Accept") and not header.value:
            headers.pop(name, None)
        else:
            headers[name] = header.value
    return headers
