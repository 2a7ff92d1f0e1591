"""The httpGet probe (upstream: pkg/probe/http): any status from 200 to 399 is a success.

Certificates are not verified, proxies not used, connections not kept. Redirects are followed while they stay on the same host;
one that leads away ends the probe with a warning, so that a container cannot send the kubelet elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from agent import http_get, http_request
from agent.http_request import Request
from agent.http_response import BodyError, ResponseError
from agent.probes.http_errors import wording
from agent.probes.result import Result, Target, Verdict, errored, failure, success
from agent.threads import Owner
from kube import tls_settings, urls
from kube.api import core_v1
from kube.loop_timeout import LoopTimeout

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
        limit = LoopTimeout(probe.timeout_seconds or 1)
        request = target.once(action, lambda: _request(action, target))
        if isinstance(request, Result):
            return request
        return await _get(request, target.owner, limit)


def _request(action: core_v1.HTTPGetAction, target: Target) -> Request | Result:
    """Form an action's request; return the probe's result if there is none that can be sent."""
    try:
        url = http_request.url_of(action, target.pod_ip, target.port(action.port))
    except (LookupError, ValueError) as error:
        return errored(str(error))
    try:
        return http_request.form(url, headers_of(action.http_headers, USER_AGENT))
    except ValueError as error:
        return failure(f'Get "{url}": {error}')


async def _get(request: Request, owner: Owner, limit: LoopTimeout) -> Result:
    """GET a URL. A redirect that cannot be read is the container's failure, as any other of its answers."""
    for _ in range(_MAX_REDIRECTS):
        url = request.url
        try:
            answer = await http_get.get(request, owner, tls_settings.unchecked(), limit, _MAX_BODY)
        except (http_get.BodyTimeoutError, BodyError) as error:
            return failure(str(error))
        except TimeoutError as error:
            return failure(f'Get "{url}": {error}')
        except (http_get.ConnectError, ResponseError, OSError, EOFError, ValueError) as error:
            return failure(f'Get "{url}": {wording(error, urls.split(url))}')
        if answer.status in _REDIRECTS and answer.location:
            try:
                moved = _resolved(url, answer.location)
                stays = urls.split(moved).hostname == request.host
            except ValueError as error:
                return failure(f'Get "{url}": {error}')
            if stays:
                try:
                    request = http_request.form(moved, request.headers)
                except ValueError as error:
                    return failure(f'Get "{moved}": {error}')
                continue
        body = answer.body.decode(errors="replace")
        if not 200 <= answer.status < 400:
            return failure(f"HTTP probe failed with statuscode: {answer.status}")
        if answer.status >= 300:
            return Result(Verdict.WARNING, f"Probe terminated redirects, Response body: {body}")
        return success(body)
    return failure(f'Get "{request.url}": stopped after {_MAX_REDIRECTS} redirects')


def _resolved(url: str, location: bytes) -> str:
    """Return where a Location leads from a URL. Raise ValueError."""
    if len(location) > http_request.URL_LENGTH:
        raise ValueError(f"failed to parse Location header: it has more than {http_request.URL_LENGTH} bytes")
    text = _text(location)
    try:
        return urls.join(url, text)
    except ValueError as error:
        raise ValueError(f"failed to parse Location header {json.dumps(text)}: {error}") from error


def _text(location: bytes) -> str:
    """Decode a header; what is not UTF-8 is percent-encoded, for text with it could not be sent on."""
    decoded = location.decode(errors="surrogateescape")
    return _UNDECODED.sub(lambda found: f"%{ord(found[0]) - 0xDC00:02X}", decoded)


def headers_of(wanted: Sequence[core_v1.HTTPHeader], user_agent: str) -> dict[str, str]:
    """Return the request's headers; an empty value given for User-Agent or Accept leaves the header out.

    Raise ValueError if they are too long.
    """
    http_request.check_length(wanted)
    headers = {"User-Agent": user_agent, "Accept": "*/*"}
    for header in wanted:
        name = "-".join(part.capitalize() for part in header.name.split("-"))
        if name in ("User-Agent", "Accept") and not header.value:
            headers.pop(name, None)
        else:
            headers[name] = header.value
    return headers
