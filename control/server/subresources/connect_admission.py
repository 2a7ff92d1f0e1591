"""Admission for requests that open a connection: exec, attach, port-forward, and the proxies of nodes, pods and Services.

Plugins, policies and webhooks see the operation CONNECT and as its object the options that the URL spells, with their
types (upstream's conversion of url.Values to PodExecOptions and its like).
"""

from __future__ import annotations

from typing import Any

from control.http.exchange import Request
from control.interfaces.admission import Attributes
from control.server.verbs import Verbs
from kube import errors
from kube.resources import Resource

_FLAGS = ("stdin", "stdout", "stderr", "tty")
_KINDS = {
    ("pods", "exec"): "PodExecOptions",
    ("pods", "attach"): "PodAttachOptions",
    ("pods", "portforward"): "PodPortForwardOptions",
    ("nodes", "proxy"): "NodeProxyOptions",
    ("pods", "proxy"): "PodProxyOptions",
    ("services", "proxy"): "ServiceProxyOptions",
}


async def admit(server: Verbs, request: Request, resource: Resource) -> None:
    """Ask all of admission whether a connection may be made; raises StatusError if it may not."""
    info = request.info
    if request.query_string and request.query.get("dryRun"):
        raise errors.bad_request("dryRun is not supported")
    note = request.note
    attributes = Attributes(
        resource=resource,
        operation="CONNECT",
        user=request.user,
        namespace=info.namespace,
        name=info.name,
        subresource=info.subresource,
        obj=options_of(request, resource),
        warnings=request.warnings,
        annotations=note.annotations if note is not None else {},
    )
    await server.registry.admission.admit(attributes)
    await server.registry.admission.validate(attributes)


def options_of(request: Request, resource: Resource) -> dict[str, Any]:
    """Return the options as an object of their kind; parameters that the URL lacks are omitted."""
    part = request.info.subresource
    found: dict[str, Any] = {"kind": _KINDS[resource.plural, part], "apiVersion": "v1"}
    if part == "proxy":
        path = f"/{request.info.rest}" if request.info.rest else ""
        if request.path.endswith("/") and not path.endswith("/"):
            path += "/"
        return {**found, "path": path} if path else found
    if part == "portforward":
        ports = [
            int(port)
            for text in request.query.get("ports", [])
            for port in text.split(",")
            if port.isdecimal() and len(port) < 20
        ]
        return {**found, "ports": ports} if ports else found
    found |= {name: True for name in _FLAGS if request.flag(name)}
    if container := request.option("container"):
        found["container"] = container
    if part == "exec" and (command := request.query.get("command")):
        found["command"] = list(command)
    return found
