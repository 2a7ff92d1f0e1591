"""Proxies requests to a node's agent: a pod's logs, exec, attach, port-forward, and the node's own API.

Here the request is checked (is there such a pod, on a node, which container is meant), the agent's URL is made of it, and the
answer relayed. The agent's errors become a Status.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlencode

from control.dialing.node_dialer import Dialer, Endpoint, endpoint_of
from control.http import http1, rewrite_links
from control.http.backend_exchange import exchange
from control.http.exchange import (
    Answer,
    Request,
    Response,
    Stream,
    Upgrade,
    forwarded_headers,
    trace_headers,
    wants_socket,
    wants_upgrade,
)
from control.http.protocol import ApiProtocol
from control.server.subresources.connect_admission import admit
from control.server.verbs import Verbs
from kube import errors
from kube.errors import StatusError
from kube.json_object import Object
from kube.lazy_module import LazyModule
from kube.resources import Resource, by_path
from kube.serving.frames import SessionYield

if TYPE_CHECKING:
    from control.server import socket_stream
else:
    socket_stream = LazyModule("control.server.socket_stream")

_LOG_OPTIONS = ("follow", "previous", "sinceSeconds", "sinceTime", "timestamps", "tailLines", "limitBytes", "stream")
_NODES = by_path("", "v1", "nodes")
_COMMANDS = frozenset({"exec", "attach", "run", "portforward", "cri"})
"""First parts of the agent's paths behind which containers are given commands or data."""


async def log(
    server: Verbs, dialer: Dialer, session_yield: SessionYield, request: Request, resource: Resource
) -> Answer:
    """GET pods/log: the agent's /containerLogs, streamed."""
    pod = (await server.registry.get(resource, request.info.namespace, request.info.name)).obj
    _check_log_options(request)
    handshake = socket_stream.accept_handshake(request) if wants_socket(request) else None
    if isinstance(handshake, Response):
        return handshake
    container = _container(pod, request.option("container"))
    endpoint = await _endpoint(server, pod)
    query = [(name, request.option(name)) for name in _LOG_OPTIONS if request.option(name)]
    path = _agent_path("containerLogs", pod, container, query)
    sent = http1.request_head("GET", path, endpoint.authority, trace_headers(request), upgrade=False)
    head, reader, writer = await exchange(request, lambda: dialer.dial(endpoint), sent)
    if head.status != 200:
        raise await _refusal(head, reader, writer, request.info.name)
    kind = next((value for name, value in head.headers if name == b"content-type"), b"text/plain")
    stream = Stream(http1.body_chunks(head, reader, writer), kind)
    return stream if handshake is None else socket_stream.over_socket(handshake, stream, session_yield)


async def _refusal(head: http1.Head, reader: Any, writer: Any, name: str) -> StatusError:
    """Turn an agent's error into a Status, as upstream's GenericHttpResponseChecker."""
    text = (await http1.whole(head, reader, writer, http1.ERROR_LIMIT)).decode("utf-8", "replace").strip()
    if head.status == 500:
        return errors.internal(text)
    if head.status == 400:
        return errors.bad_request(text)
    if head.status == 404:
        details = {
            "name": name,
            "kind": "pods/log",
            "causes": [{"reason": "UnexpectedServerResponse", "message": text}],
        }
        message = f"the server could not find the requested resource ( pods/log {name})"
        return StatusError(404, "NotFound", message, details)
    return StatusError(head.status, "", text or f"the node answered {head.status}")


def _check_log_options(request: Request) -> None:
    problems = []
    for name in ("tailLines", "sinceSeconds", "limitBytes"):
        value = request.number(name)
        if value is None:
            continue
        if name == "tailLines" and value < 0:
            problems.append(errors.invalid_value(name, value, "must be greater than or equal to 0"))
        elif name != "tailLines" and value < 1:
            problems.append(errors.invalid_value(name, value, "must be greater than 0"))
    if request.option("sinceSeconds") and request.option("sinceTime"):
        problems.append(errors.forbidden_field("", "at most one of `sinceTime` or `sinceSeconds` may be specified"))
    if problems:
        raise errors.invalid("", "PodLogOptions", request.info.name, problems)


async def connect(server: Verbs, dialer: Dialer, request: Request, resource: Resource) -> Answer:
    """exec, attach and port-forward: the connection itself goes to the agent."""
    what = request.info.subresource
    await server.require(request, "create")  # a WebSocket begins with a GET, and runs something all the same
    pod = (await server.registry.get(resource, request.info.namespace, request.info.name)).obj
    await admit(server, request, resource)
    if what == "portforward":
        endpoint = await _endpoint(server, pod)
        query = [("port", port) for value in request.query.get("ports", []) for port in value.split(",")]
        path = _agent_path("portForward", pod, "", query)
    else:
        container = _container(pod, request.option("container"))
        if what == "exec" and (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            raise errors.bad_request(
                f"cannot exec into a container in a completed pod; current phase is {pod['status']['phase']}"
            )
        endpoint = await _endpoint(server, pod)
        path = _agent_path(what, pod, container, _stream_options(request, what))
    return _upgraded(dialer, request, endpoint, path)


def _stream_options(request: Request, what: str) -> list[tuple[str, str]]:
    """Translate the API's stream options into the agent's."""
    names = (("stdin", "input"), ("stdout", "output"), ("stderr", "error"), ("tty", "tty"))
    query = [(agents, "1") for ours, agents in names if request.flag(ours)]
    if not any(name in ("input", "output", "error") for name, _ in query):
        raise errors.bad_request("you must specify at least 1 of stdin, stdout, stderr")
    commands = request.query.get("command", [])
    if what == "exec" and not commands:
        raise errors.bad_request("you must specify at least one command for the container")
    return query + [("command", command) for command in commands]


async def proxy(server: Verbs, dialer: Dialer, request: Request, endpoint: Endpoint) -> Answer:
    """nodes/proxy: any path of the agent's API, with the caller's right to that checked as nodes/proxy.

    What runs something in a container is `create`, whatever the method: the agent sees the server ask, and cannot check.
    """
    path = path_behind(request)
    parts = path.split("/")
    if ".." in parts or "." in parts:
        raise errors.bad_request("invalid path")
    if unquote(parts[1]).casefold() in _COMMANDS:
        await server.require(request, "create")
    if request.query_string:
        path += "?" + request.query_string.decode("latin-1")
    if wants_upgrade(request):
        return _upgraded(dialer, request, endpoint, path)
    if (moved := rewrite_links.to_the_root(request)) is not None:
        return moved
    length = http1.body_length(request.headers)
    sent = http1.request_head(
        request.method, path, endpoint.authority, forwarded_headers(request), upgrade=False, length=length
    )
    head, reader, writer = await exchange(request, lambda: dialer.dial(endpoint), sent, body=length != 0)
    return rewrite_links.rewrite_response(request, head, http1.body_chunks(head, reader, writer), endpoint.authority)


def path_behind(request: Request) -> str:
    """Return the path that a proxy's URL names on the other server; a slash at its end is one there, too."""
    path = "/" + quote(request.info.rest, safe="/:@!$&'()*+,;=~")
    return f"{path}/" if request.path.endswith("/") and not path.endswith("/") else path


# -- parts ------------------------------------------------------------------------------------------------------------
def _upgraded(dialer: Dialer, request: Request, endpoint: Endpoint, path: str) -> Answer:
    if not wants_upgrade(request):
        raise errors.bad_request("Upgrade request required")

    async def splice(protocol: ApiProtocol) -> Response | None:
        sent = http1.request_head(request.method, path, endpoint.authority, forwarded_headers(request), upgrade=True)
        head, reader, writer = await exchange(request, lambda: dialer.dial(endpoint), sent, upgrade=True)
        if head.status != 101:
            return http1.as_response(head, await http1.whole(head, reader, writer, http1.ERROR_LIMIT))
        await http1.splice(protocol, head, reader, writer)
        return None

    return Upgrade(splice)


async def _endpoint(server: Verbs, pod: Object) -> Endpoint:
    name = pod["metadata"]["name"]
    node = (pod.get("spec") or {}).get("nodeName")
    if not node:
        raise errors.bad_request(f"pod {name} does not have a host assigned")
    assert _NODES is not None
    return endpoint_of((await server.registry.get(_NODES, "", node)).obj)


def _container(pod: Object, wanted: str) -> str:
    """Return the container that is meant; raises 400 if it does not exist or is ambiguous."""
    spec, name = pod["spec"], pod["metadata"]["name"]
    regular = _names(spec.get("containers"))
    others = _names(spec.get("initContainers")), _names(spec.get("ephemeralContainers"))
    if wanted:
        if wanted not in regular and not any(wanted in names for names in others):
            raise errors.bad_request(f"container {wanted} is not valid for pod {name}")
        return wanted
    if len(regular) == 1:
        return regular[0]
    message = f"a container name must be specified for pod {name}, choose one of: [{' '.join(regular)}]"
    if others[0]:
        message += f" or one of the init containers: [{' '.join(others[0])}]"
    if others[1]:
        message += f" or one of the ephemeral containers: [{' '.join(others[1])}]"
    raise errors.bad_request(message)


def _names(containers: Iterable[Object] | None) -> list[str]:
    return [c["name"] for c in containers or ()]


def _agent_path(root: str, pod: Object, container: str, query: list[tuple[str, str]]) -> str:
    meta = pod["metadata"]
    parts = [root, meta["namespace"], meta["name"], *([container] if container else [])]
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return f"{path}?{urlencode(query)}" if query else path
