"""Serves /apis/metrics.k8s.io/v1beta1: lists and gets over what is scraped for them.

Which pods and nodes there are, and their labels, the watch cache knows; only the nodes that an answer speaks of are
looked at. Errors are metrics-server's.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from control.dialing.node_dialer import Dialer, endpoint_of
from control.event_loop.pacing import TimeSlice
from control.http import http1
from control.http.accept import LONGEST
from control.http.exchange import Answer, Request, Response
from control.http.negotiate import negotiate
from control.registry.registry import Registry
from control.resource_metrics.objects import GROUP, RESOURCES, MetricsStrategy, node_metrics, outline, pod_metrics
from control.resource_metrics.scraper import Scraper
from control.server.forms import Form
from control.server.list_options import ListOptions, read_options
from control.storage.entry import Entry
from control.storage.selection import select_entries
from kube import errors
from kube.json_object import Object
from kube.resources import Resource, by_path

BODY_LIMIT = 8 * 1024 * 1024
_STRATEGIES = {resource.plural: MetricsStrategy(resource) for resource in RESOURCES}


class ResourceMetrics:
    """Answers requests for the group from what nodes' agents measure; `dialer` reaches them."""

    def __init__(self, registry: Registry, dialer: Dialer) -> None:
        self._registry = registry
        self._scraper = Scraper(_Fetch(registry, dialer), registry.clock)

    async def answer(self, request: Request) -> Answer:
        """Answer a request for the group; raises 404, 405."""
        info = request.info
        strategy = _STRATEGIES.get(info.resource)
        if strategy is None or info.version != strategy.resource.version or info.subresource:
            raise errors.path_not_found()
        resource = strategy.resource
        if bool(info.namespace) != resource.namespaced and (info.namespace or info.verb == "get"):
            raise errors.path_not_found()
        if info.verb not in resource.verbs:
            raise errors.method_not_allowed()
        # These kinds have no protobuf form; clients that prefer it name JSON after it.
        accept = request.header(b"accept")[:LONGEST]
        accept = ",".join(clause for clause in accept.split(",") if "protobuf" not in clause)
        form = Form(negotiate(accept), strategy, request.option("includeObject"), self._registry.clock)
        options = await read_options(request, frozenset())
        # A list's name is that of its field selector, which is applied as one.
        name = info.name if info.verb == "get" else ""
        objects = await self._measured(resource, info.namespace, name, options)
        if name:
            if not objects:
                shown = f"{info.namespace}/{name}" if resource.namespaced else name
                raise errors.not_found(GROUP, resource.kind.lower(), shown)
            return Response(200, form.object(msgspec.json.encode(objects[0])), form.wanted.content_type)
        entries = [Entry(obj["metadata"]["name"], 0, msgspec.json.encode(obj), lambda obj: {}) for obj in objects]
        return Response(200, form.list(entries, {}), form.wanted.content_type)

    async def _measured(self, resource: Resource, namespace: str, name: str, options: ListOptions) -> list[Object]:
        """Return the metrics of what is requested, as far as there are any."""
        registry = self._registry
        core = by_path("", "v1", resource.plural)
        assert core is not None
        outlines = await _outlines(registry, core, namespace, name, options)
        now = registry.clock.now()
        if resource.plural == "nodes":
            usages = await self._scraper.usage(node["metadata"]["name"] for node in outlines)
            found = [(node, usages.get(node["metadata"]["name"])) for node in outlines]
            return [node_metrics(node, used.node, now) for node, used in found if used is not None and used.node]
        running = [pod for pod in outlines if _runs(pod)]
        usages = await self._scraper.usage(sorted({pod["spec"]["nodeName"] for pod in running}))
        shown = []
        for pod in running:
            usage = usages.get(pod["spec"]["nodeName"])
            metrics = pod_metrics(pod, usage.containers, now) if usage is not None else None
            if metrics is not None:
                shown.append(metrics)
        return shown


async def _outlines(
    registry: Registry, core: Resource, namespace: str, name: str, options: ListOptions
) -> list[Object]:
    """Return of the pods or nodes that are requested what their metrics are made with."""
    cached, predicate = registry.cached(core), options.predicate()
    if name:
        entry = cached.get(core.key(namespace, name))
        entries: Sequence[Entry] = [] if entry is None else [entry]
    else:
        entries = cached.list(f"{core.storage_prefix}{namespace}/" if namespace and core.namespaced else "").entries
    if predicate is not None:
        entries, _ = await select_entries(entries, predicate, costly=options.costly)
    found, time_slice = list[Object](), TimeSlice()
    for entry in entries:
        await time_slice.step(len(entry.data))
        found.append(outline(entry.data))
    return found


def _runs(pod: Object) -> bool:
    return bool((pod.get("spec") or {}).get("nodeName")) and (pod.get("status") or {}).get("phase") == "Running"


class _Fetch:
    """Reads a node's /metrics/resource over the connection that agents trust the server on."""

    def __init__(self, registry: Registry, dialer: Dialer) -> None:
        self._registry, self._dialer = registry, dialer

    async def __call__(self, node: str) -> str:
        resource = by_path("", "v1", "nodes")
        assert resource is not None
        endpoint = endpoint_of((await self._registry.get(resource, "", node)).obj)
        reader, writer = await self._dialer.dial(endpoint)
        try:
            headers = [(b"Accept", b"text/plain")]
            writer.write(http1.request_head("GET", "/metrics/resource", endpoint.authority, headers, upgrade=False))
            head = await http1.read_head(reader)
            body = await http1.whole(head, reader, writer, BODY_LIMIT)
        finally:
            writer.close()
        if head.status != 200:
            raise errors.StatusError(
                502, "", f"the node answered {head.status}: {body[:200].decode('utf-8', 'replace')}"
            )
        return body.decode("utf-8", "replace")
