"""Checks that an extension server is available: its Service, its endpoints, its discovery document; with upstream's reasons.

What it answers is limited before it is decoded and after: it is kept, and shown to all clients. The OpenAPI document, which is
large, is read by the helper process.
"""

from __future__ import annotations

import logging

import msgspec

from control.aggregation import discovery_document, openapi_v2
from control.aggregation.openapi_v2 import Part, Unusable
from control.aggregation.remote import Remote
from control.dialing.service_backend import SLICES, backend
from control.event_loop import offload
from control.interfaces.lookup import Objects
from kube.errors import StatusError
from kube.json_object import Object

log = logging.getLogger(__name__)
INDEX_LIMIT = 1 << 20
"""Bytes of an index of OpenAPI v3 documents."""
URL_LIMIT = 4096
"""Characters of a document's URL in it, which this server's index names in turn."""
OPENAPI_LIMIT = 8 << 20
"""Bytes of an OpenAPI v2 document."""
Verdict = tuple[bool, str, str]
PASSED: Verdict = (True, "Passed", "all checks passed")
LOCAL: Verdict = (True, "Local", "Local APIServices are always available")


async def check(remote: Remote, lookup: Objects) -> Verdict:
    """Ask an extension server for its discovery document; returns (available, reason, message).

    Whatever the server answers is a verdict on it: nothing but a cancellation is raised.
    """
    problem = await _unreachable(remote, lookup)
    if problem is not None:
        return problem
    group, version = remote.place
    path = f"/apis/{group}/{version}"
    where = remote.spec["service"]
    shown = f"https://{remote.host}:{where.get('port') or 443}{path}"
    try:
        status, body = await remote.fetch(lookup, path, discovery_document.LIMIT)
        if not 200 <= status < 300:
            return _failed(shown, f"bad status from {shown}: {status}")
        found = await offload.run(remote.owner, len(body), discovery_document.read, body)
        remote.resources, remote.digest = found
    except (StatusError, TimeoutError, OSError, ValueError) as error:
        return _failed(shown, f'Get "{shown}": {str(error) or "context deadline exceeded"}')
    except Exception as error:
        log.exception("the discovery document of %s cannot be used", shown)
        return _failed(shown, f'Get "{shown}": {type(error).__name__}')
    return PASSED


async def read_documents(remote: Remote, lookup: Objects) -> None:
    """Read the OpenAPI documents of an extension server that is available; one that cannot be used is left out.

    After its verdict: the documents are large, and a server may be slow to write them.
    """
    before = remote.openapi
    remote.openapi = await _openapi(remote, lookup)
    if remote.part is None or not remote.openapi or remote.openapi != before:
        # The index says by its hash whether the schemas changed.
        remote.part = await _part(remote, lookup)


def _failed(shown: str, why: str) -> Verdict:
    return False, "FailedDiscoveryCheck", f"failing or missing response from {shown}: {why}"


async def _unreachable(remote: Remote, lookup: Objects) -> Verdict | None:
    where = remote.spec["service"]
    name, namespace, port = where["name"], where["namespace"], where.get("port") or 443
    service = lookup.get("services", namespace, name)
    if service is None:
        return False, "ServiceNotFound", f'service/{name} in "{namespace}" is not present'
    spec = service.get("spec") or {}
    if spec.get("type") == "ExternalName":
        return None
    listening = [p for p in spec.get("ports") or () if p.get("port") == port]
    if not listening:
        return False, "ServicePortError", f'service/{name} in "{namespace}" is not listening on port {port}'
    if await anext(aiter(lookup.indexed(SLICES, namespace, name)), None) is None:
        return False, "EndpointsNotFound", f'cannot find endpointslices for service/{name} in "{namespace}"'
    try:
        await backend(lookup, namespace, name, str(port))
    except StatusError:
        port_name = listening[0].get("name", "")
        message = f'endpoints for service/{name} in "{namespace}" have no addresses with port name "{port_name}"'
        return False, "MissingEndpoints", message
    return None


class _Place(msgspec.Struct):
    serverRelativeURL: str = ""


class _Index(msgspec.Struct):
    paths: dict[str, _Place]


_indexes = msgspec.json.Decoder(_Index)


async def _openapi(remote: Remote, lookup: Objects) -> str:
    """Return where the extension has its OpenAPI v3 document, "" where it has none."""
    try:
        status, body = await remote.fetch(lookup, "/openapi/v3", INDEX_LIMIT)
        index = await offload.run(remote.owner, len(body), _indexes.decode, body if status == 200 else b"{}")
        found = index.paths["apis/" + "/".join(remote.place)].serverRelativeURL
    except Exception:  # no document that can be used is none: the extension serves its resources all the same
        return ""
    return found if found.startswith("/openapi/v3/") and len(found) <= URL_LIMIT else ""


async def _part(remote: Remote, lookup: Objects) -> Part | None:
    """Return the extension's part of the OpenAPI v2 document, None if it has none."""
    try:
        status, body = await remote.fetch(lookup, "/openapi/v2", OPENAPI_LIMIT)
        if status != 200:
            return None
        place = remote.place
        made, problem = await offload.by_helper(
            remote.owner, "openapi_part", body, *place, instead=lambda: (openapi_v2.build(body, *place), "")
        )
        if problem:
            raise Unusable(problem)
        return Part(*made) if made is not None else None
    except Exception as error:
        log.info("/openapi/v2 contains nothing of %s: %s", remote.host, error)
        return None


def condition(verdict: Verdict, now: str) -> Object:
    """Return the Available condition."""
    available, reason, message = verdict
    return {
        "type": "Available",
        "status": "True" if available else "False",
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }
