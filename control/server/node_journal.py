"""Journals of the agents: entries of a pod's node are merged into the answer about the pod.

They are read over the connection that logs are read over, with limits of time, size, values and depth; the answer says which
agent does not respond, or with what cannot be used. An agent may only report as kubelet; it is asked about pods that are bound
to it and about its own node.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlencode

import msgspec

from control.dialing.node_dialer import Dialer, endpoint_of
from control.event_loop import offload
from control.http import http1
from control.http.backend_exchange import exchange
from control.http.exchange import Request, trace_headers
from control.registry.registry import Registry
from kube.collecting import uncollected_call
from kube.errors import StatusError
from kube.journal import PATH, Page, of_present
from kube.json_object import UNREADABLE, Object
from kube.nesting import TooDeep, check_nesting
from kube.resources import Resource, by_path
from kube.value_count import TooManyValues, check_count

SECONDS = 3.0
MOST_BYTES = 2 << 20
"""Bytes of an agent's answer: a page of its journal (kube/journal.py: PAGE_BYTES), with quotes that JSON escapes."""
MOST_ENTRIES = 5000
"""Entries of an agent's answer: its journal has at most as many in a page."""
MOST_VALUES = 64 << 10
"""Values of an agent's answer: 13 for each entry. Decoding them holds the interpreter's lock."""
MOST_SECONDS = 32503680000.0
"""Seconds since 1970 in the year 3000: no entry is later, whatever an agent sends."""
_NODES = by_path("", "v1", "nodes")


class _TooLong(ValueError):
    """An agent's answer is cut, because it has more than MOST_BYTES."""


class NodeJournals:
    """Reads the journals of agents."""

    def __init__(self, registry: Registry, dialer: Dialer) -> None:
        self._registry, self._dialer = registry, dialer

    async def merged(self, page: Page, request: Request, resource: Resource, obj: Object) -> Page:
        """Return a page about an object with the entries of its node's agent, if it is a pod that has one, or a node."""
        name = obj["metadata"]["name"]
        if resource.target == "nodes":
            node = name
        elif resource.target == "pods":
            node = (obj.get("spec") or {}).get("nodeName")
        else:
            return page
        if not node:
            return page
        namespace = obj["metadata"].get("namespace") or ""
        try:
            async with asyncio.timeout(SECONDS):
                part = await self._read(request, obj, node, namespace, name)
        except TimeoutError:
            return _without(page, node, f"does not respond within {SECONDS:g} s")
        except StatusError as error:
            return _without(page, node, f"does not respond: {error.message}")
        except (TooDeep, TooManyValues, _TooLong) as error:
            return _without(page, node, f"has no usable answer: {error}")
        except (*UNREADABLE, OSError):
            return _without(page, node, "keeps no journal")
        own = of_present(part.entries, obj["metadata"])
        entries = sorted([*page.entries, *own], key=lambda entry: entry.time)
        since = max(page.complete_since, part.complete_since)
        return Page(entries, since, page.not_known)

    async def _read(self, request: Request, obj: Object, node: str, namespace: str, name: str) -> Page:
        """Read the entries that a node has of an object; errors are those of the connection, of limits and of msgspec."""
        assert _NODES is not None
        owner = obj if not namespace else (await self._registry.get(_NODES, "", node)).obj
        endpoint = endpoint_of(owner)
        path = f"{PATH}?{urlencode({'namespace': namespace, 'name': name})}"
        sent = http1.request_head("GET", path, endpoint.authority, trace_headers(request), upgrade=False)
        head, reader, writer = await exchange(request, lambda: self._dialer.dial(endpoint), sent)
        body = await http1.whole(head, reader, writer, MOST_BYTES)
        if head.status == 404:
            raise msgspec.DecodeError("no such path")
        if head.status != 200:
            raise StatusError(head.status, "", f"status {head.status}")
        if len(body) == MOST_BYTES:
            raise _TooLong(f"more than {MOST_BYTES} bytes")
        return await offload.run(request.user.name, len(body), _decoded, body)


def _decoded(body: bytes) -> Page:
    """Decode an agent's answer: what a kubelet says, at times that can be shown, without other texts."""
    check_count(body, MOST_VALUES)
    check_nesting(body)
    page = uncollected_call(msgspec.json.decode, body, type=Page)
    since = min(max(0.0, page.complete_since), MOST_SECONDS)
    if len(page.entries) > MOST_ENTRIES:
        del page.entries[:-MOST_ENTRIES]
        since = max(since, min(page.entries[0].time, MOST_SECONDS))
    return Page([each for each in page.entries if each.actor == "kubelet" and 0.0 <= each.time < MOST_SECONDS], since)


def _without(page: Page, node: str, why: str) -> Page:
    return Page(page.entries, page.complete_since, [*page.not_known, f"decisions of node {node}: its agent {why}"])
