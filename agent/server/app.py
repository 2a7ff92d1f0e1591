"""The kubelet's HTTP API: its routes, behind the filter that every request passes first (auth_filter.py).

Paths, parameters and messages are upstream's (pkg/kubelet/server): the API server of any cluster calls them for logs, exec,
attach, port-forward, and metrics servers scrape the rest. The routes are Starlette's: nothing here has a request
model, for which FastAPI would add 0.15 s to the start and 15 MB.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from agent import commands, threads
from agent.attached_clients import AttachedClients
from agent.config import EnabledHandlers
from agent.interfaces import Pods
from agent.metrics.kubelet_metrics import KubeletMetrics
from agent.server.auth_filter import AuthFilter
from agent.server.authorization import Authorizer
from agent.server.checkpoint import Checkpoints
from agent.server.container_logs import ContainerLogs
from agent.server.health import Health
from agent.server.journal_page import JournalPage
from agent.server.log_file_source import LogFiles
from agent.server.pod_list import pod_list
from agent.server.request_metrics import RequestMetrics
from agent.server.runtime_sessions import RuntimeSessions
from agent.server.sessions import Sessions, session_routes
from agent.server.system_logs import SystemLogs
from agent.server.verbosity import set_verbosity
from agent.server.zpages import ZPages
from agent.volumes.cleanup import CleanupError
from cri.errors import CRIError
from cri.runtime_service import RuntimeService
from kube import serialize
from kube.api import core_v1
from kube.clock import Clock
from kube.delegated_authentication import Authenticator
from kube.exposition import CONTENT_TYPE
from kube.journal import PATH as JOURNAL_PATH
from kube.journal import Journal
from kube.tracing.tracer import Tracer
from kube.yielding import LoopYield

Text = Callable[[], Awaitable[str]]
_loop_yield = LoopYield()


class Summary(Protocol):
    """Returns /stats/summary in pieces of JSON, each of which takes a moment."""

    def __call__(self, *, only_cpu_and_memory: bool) -> Awaitable[Iterator[bytes]]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerDependencies:
    """Dependencies of the server's handlers."""

    pods: Pods
    runtime: RuntimeService
    clock: Clock
    attached: AttachedClients = field(default_factory=AttachedClients)
    pod_logs_dir: Path
    health: Callable[[], str]
    """Returns why the agent is unwell, "" when it is well."""
    configuration: Callable[[], Mapping[str, Any]]
    """Returns the KubeletConfiguration in force, for /configz."""
    summary: Summary
    remove_volume: Callable[[str], None]
    """Removes a local-path volume's folder by name; raises ValueError for a name that none can have. Blocks."""
    checkpoints_dir: Path = Path("/var/lib/kubelet/checkpoints")
    streaming_idle: float = 4 * 3600.0
    """Seconds after which a session over which nothing goes is ended; 0: never."""
    metrics_texts: Mapping[str, Text]
    """Prometheus texts by path: /metrics, /metrics/cadvisor, /metrics/resource, /metrics/probes."""
    system_logs_dir: Path = Path("/var/log")
    metrics: KubeletMetrics = field(default_factory=KubeletMetrics)
    flags: Mapping[str, str] = field(default_factory=dict)
    """The flags for /flagz."""
    journal: Journal | None = None


def build(
    parts: ServerDependencies,
    authenticator: Authenticator,
    authorizer: Authorizer,
    handlers: EnabledHandlers | None = None,
    tracer: Tracer | None = None,
) -> AuthFilter:
    """Build the application with the enabled handlers, by default those of upstream's defaults."""
    handlers = handlers or EnabledHandlers()
    show, health = _Show(parts), Health(parts.health)
    routes = [Route("/healthz", health.all), Route("/healthz/{name}", health.one), Route("/metrics/slis", health.slis)]
    routes += [Route(path, show.pods) for path in ("/pods", "/pods/")]
    routes += [Route("/stats/summary", show.summary)]
    routes += [Route(path, _metrics_endpoint(text)) for path, text in parts.metrics_texts.items()]
    routes.append(Route("/localVolumes/{name}", _Volumes(parts).remove, methods=["DELETE"]))
    routes += _debugging(parts, show, handlers) if handlers.debugging else _without_debugging()
    return AuthFilter(Starlette(routes=routes), authenticator, authorizer, RequestMetrics(parts.metrics), tracer)


def _without_debugging() -> list[Route]:
    shut = ("run", "exec", "attach", "portForward", "containerLogs", "runningpods", "debug/pprof", "logs")
    return [_closed(f"/{path}/{{rest:path}}", "Debug endpoints are disabled.") for path in shut]


def _closed(path: str, message: str) -> Route:
    """Return a route that answers that it is disabled."""

    async def answer(request: Request) -> Response:
        return PlainTextResponse(f"{message}\n", 405)

    return Route(path, answer, methods=["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])


def _debugging(parts: ServerDependencies, show: _Show, handlers: EnabledHandlers) -> list[Route]:
    if handlers.system_logs:
        logs = SystemLogs(parts.system_logs_dir, queries=handlers.system_log_queries)
        routes = [Route("/logs", _to("logs/")), Route("/logs/{path:path}", logs.read)]
    else:
        routes = [_closed("/logs/{rest:path}", "logs endpoint is disabled.")]
    if not handlers.profiling:
        routes.append(_closed("/debug/pprof/{rest:path}", "profiling endpoint is disabled."))
    if handlers.flags:
        routes.append(Route("/debug/flags/v", set_verbosity, methods=["PUT"]))
    else:
        routes.append(_closed("/debug/flags/v", "flags endpoint is disabled."))
    routes += [Route(path, show.running_pods) for path in ("/runningpods", "/runningpods/")]
    routes.append(Route("/configz", show.configuration))
    if parts.journal is not None:
        routes.append(Route(JOURNAL_PATH, JournalPage(parts.journal).read))
    container_logs = ContainerLogs(parts.pods, LogFiles(parts.runtime, parts.pod_logs_dir), parts.clock)
    routes.append(Route("/containerLogs/{namespace}/{pod}/{container}", container_logs.read))
    run = _Run(parts)
    for tail in ("{namespace}/{pod}/{container}", "{namespace}/{pod}/{uid}/{container}"):
        routes.append(Route(f"/run/{tail}", run.run, methods=["POST"]))
    checkpoints = Checkpoints(parts.pods, parts.runtime, parts.checkpoints_dir, parts.clock)
    routes.append(Route("/checkpoint/{namespace}/{pod}/{container}", checkpoints.write, methods=["POST"]))
    backends = RuntimeSessions(parts.runtime)
    routes += session_routes(Sessions(parts.pods, backends, parts.clock, parts.streaming_idle, parts.attached))
    pages = ZPages(parts.clock, parts.flags, sorted({"/" + route.path.split("/")[1] for route in routes}))
    return [*routes, Route("/statusz", pages.status), Route("/flagz", pages.flags)]


def _to(place: str) -> Callable[[Request], Awaitable[Response]]:
    async def redirect(request: Request) -> Response:
        return RedirectResponse(place, 301)

    return redirect


class _Show:
    """Handlers that show state."""

    def __init__(self, parts: ServerDependencies) -> None:
        self._parts = parts

    async def configuration(self, request: Request) -> Response:
        return JSONResponse({"kubeletconfig": self._parts.configuration()})

    async def pods(self, request: Request) -> Response:
        return await pod_list([view.pod for view in self._parts.pods.views()])

    async def running_pods(self, request: Request) -> Response:
        found = []
        for view in self._parts.pods.views():
            alive = [
                core_v1.Container(name=record.name, image=record.image) for record in view.containers if record.running
            ]
            if alive or (view.sandbox is not None and view.sandbox.ready):
                known = view.pod.metadata
                metadata = type(known)(name=known.name, namespace=known.namespace, uid=known.uid)
                found.append(core_v1.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=alive)))
        return await pod_list(found)

    async def summary(self, request: Request) -> Response:
        only = request.query_params.get("only_cpu_and_memory", "").lower() in ("1", "true")
        try:
            pieces = await self._parts.summary(only_cpu_and_memory=only)
        except CRIError as error:
            return PlainTextResponse(f"failed to list pod stats: {error}", 500)
        return StreamingResponse(_one_by_one(pieces), media_type="application/json")


class _Volumes:
    """Remove a volume's folder for the local-path provisioner (an endpoint of Wherry). Authorized as nodes/proxy."""

    def __init__(self, parts: ServerDependencies) -> None:
        self._parts = parts

    async def remove(self, request: Request) -> Response:
        try:
            name = request.path_params["name"]
            # It may have millions of files.
            await threads.call(f"local-path volume {name}", self._parts.remove_volume, name)
        except ValueError as error:
            return PlainTextResponse(str(error), 400)
        except (CleanupError, OSError) as error:
            return PlainTextResponse(serialize.readable(f"cannot remove the volume's folder: {error}"), 500)
        return PlainTextResponse("removed\n")


class _Run:
    """The old form of running a command: no streams, the output is the answer."""

    def __init__(self, parts: ServerDependencies) -> None:
        self._parts = parts

    async def run(self, request: Request) -> Response:
        path = request.path_params
        view = self._parts.pods.view(path["namespace"], path["pod"])
        if view is None or path.get("uid", view.pod.metadata.uid) != view.pod.metadata.uid:
            return PlainTextResponse("pod does not exist", 404)
        found = view.running(path["container"])
        if found is None:
            return PlainTextResponse(f'container not found ("{path["container"]}")', 500)
        command = request.query_params.get("cmd", "").split()
        try:
            turn = commands.turn_of(path["namespace"])
            result = await self._parts.runtime.exec_sync(found.id, command, turn=turn)
        except CRIError as error:
            return PlainTextResponse(str(error), 500)
        return Response(result.stdout + result.stderr, 200 if result.exit_code == 0 else 500, media_type="text/plain")


def _metrics_endpoint(text: Text) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return PlainTextResponse(await text(), media_type=CONTENT_TYPE)
        except CRIError as error:
            return PlainTextResponse(str(error), 500)

    return answer


async def _one_by_one(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    """Yield pieces, each in an iteration of the event loop of its own, also if several clients receive them."""
    for piece in pieces:
        yield piece
        await _loop_yield.wait()
