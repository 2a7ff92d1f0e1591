"""The kubelet's HTTP API: routes, and the guard that every request passes first.

Paths, parameters and messages are upstream's (pkg/kubelet/server): the API server of any cluster calls them for
logs, exec, attach, port-forward, and metrics servers scrape the rest.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from agent.contracts import Pods
from agent.server import log_files, log_request
from agent.server.authentication import Authenticator
from agent.server.authorization import Authorizer
from agent.server.sessions import Receive, Scope, Send, SessionEndpoint, Sessions, answer
from cri.errors import CRIError
from cri.messages import ContainerState
from cri.runtime_service import RuntimeService
from kube import serialize
from kube.api import core_v1
from kube.clock import Clock
from kube.errors import StatusError

Text = Callable[[], Awaitable[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the API shows and does its work with."""

    pods: Pods
    runtime: RuntimeService
    clock: Clock
    pod_logs_dir: Path
    health: Callable[[], str]
    """Returns why the agent is unwell, "" when it is well."""
    configuration: Callable[[], Mapping[str, Any]]
    """Returns the KubeletConfiguration in force, for /configz."""
    summary: Callable[[bool], Awaitable[Mapping[str, Any]]]
    """Returns /stats/summary; True: only CPU and memory."""
    metrics: Mapping[str, Text]
    """Prometheus texts by path: /metrics, /metrics/cadvisor, /metrics/resource, /metrics/probes."""


class Guard:
    """Lets a request through to the application once it is known who asks and that they may."""

    def __init__(self, app: Any, authenticator: Authenticator, authorizer: Authorizer) -> None:
        self._app = app
        self._authenticator = authenticator
        self._authorizer = authorizer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Authenticate, authorise, pass on."""
        if scope["type"] == "http":
            authorization = next((v.decode("latin-1") for k, v in scope["headers"] if k == b"authorization"), "")
            certificate = scope.get("extensions", {}).get("tls", {}).get("client_certificate")
            try:
                user = await self._authenticator.authenticate(certificate, authorization)
                if user is None:
                    await answer(send, 401, "Unauthorized")
                    return
                refused = await self._authorizer.forbidden(user, scope["method"], scope["path"])
            except StatusError as error:
                await answer(send, 500, f"Authorization error: {error}")
                return
            if refused:
                await answer(send, 403, refused)
                return
        await self._app(scope, receive, send)


def build(parts: Parts, authenticator: Authenticator, authorizer: Authorizer) -> Guard:
    """Make the application."""
    app = FastAPI(openapi_url=None, docs_url=None, redoc_url=None)
    _health(app, parts)
    _pods(app, parts)
    _logs(app, parts)
    _figures(app, parts)
    sessions = Sessions(parts.pods, parts.runtime)
    for name, session, with_container in (
        ("exec", sessions.exec, True),
        ("attach", sessions.attach, True),
        ("portForward", sessions.port_forward, False),
    ):
        tail = "/{container}" if with_container else ""
        endpoint = SessionEndpoint(session, with_container=with_container)
        for path in (f"/{name}/{{namespace}}/{{pod}}{tail}", f"/{name}/{{namespace}}/{{pod}}/{{uid}}{tail}"):
            app.router.routes.append(Route(path, endpoint, methods=["GET", "POST"]))
    return Guard(app, authenticator, authorizer)


def _health(app: FastAPI, parts: Parts) -> None:
    @app.get("/healthz")
    @app.get("/healthz/ping")
    @app.get("/healthz/log")
    @app.get("/healthz/syncloop")
    async def healthz() -> Response:
        why = parts.health()
        return PlainTextResponse(f"healthz check failed: {why}\n" if why else "ok", 500 if why else 200)

    @app.get("/configz")
    async def configz() -> Response:
        return JSONResponse({"kubeletconfig": parts.configuration()})


def _pods(app: FastAPI, parts: Parts) -> None:
    @app.get("/pods")
    @app.get("/pods/")
    async def pods() -> Response:
        return _pod_list([view.pod for view in parts.pods.views()])

    @app.get("/runningpods")
    @app.get("/runningpods/")
    async def running_pods() -> Response:
        found = []
        for view in parts.pods.views():
            alive = [
                core_v1.Container(name=record.name, image=record.image) for record in view.containers if record.running
            ]
            if alive or (view.sandbox is not None and view.sandbox.ready):
                known = view.pod.metadata
                metadata = type(known)(name=known.name, namespace=known.namespace, uid=known.uid)
                found.append(core_v1.Pod(metadata=metadata, spec=core_v1.PodSpec(containers=alive)))
        return _pod_list(found)

    @app.post("/run/{namespace}/{pod}/{container}")
    @app.post("/run/{namespace}/{pod}/{uid}/{container}")
    async def run(request: Request, namespace: str, pod: str, container: str, uid: str = "") -> Response:
        view = parts.pods.view(namespace, pod)
        if view is None or (uid and view.pod.metadata.uid != uid):
            return PlainTextResponse("pod does not exist", 404)
        found = view.running(container)
        if found is None:
            return PlainTextResponse(f'container not found ("{container}")', 500)
        command = request.query_params.get("cmd", "").split()
        try:
            result = await parts.runtime.exec_sync(found.id, command)
        except CRIError as error:
            return PlainTextResponse(str(error), 500)
        return Response(result.stdout + result.stderr, 200 if result.exit_code == 0 else 500, media_type="text/plain")


def _logs(app: FastAPI, parts: Parts) -> None:
    @app.get("/containerLogs/{namespace}/{pod}/{container}")
    async def container_logs(request: Request, namespace: str, pod: str, container: str) -> Response:
        try:
            options = log_request.options(request.query_params, parts.clock.now())
            view = parts.pods.view(namespace, pod)
            record = log_request.instance(view, pod, container, options.previous)
        except log_request.LogRequestError as error:
            return PlainTextResponse(str(error), error.status)

        async def running() -> bool:
            try:
                status = await parts.runtime.container_status(record.id)
            except CRIError:
                return False
            return bool(status.state == ContainerState.CONTAINER_RUNNING)

        pieces = log_files.read(parts.pod_logs_dir, Path(record.log_path), options, running)
        return await _streamed(pieces)


async def _streamed(pieces: AsyncGenerator[bytes, None]) -> Response:
    """Answer with what an iterator yields; what fails before the first piece is still an error response."""
    try:
        first = await anext(pieces, None)
    except (OSError, ValueError) as error:
        return PlainTextResponse(f"failed to open log file: {error}", 500)
    if first is None:
        return PlainTextResponse("")

    async def all_pieces() -> AsyncIterator[bytes]:
        async with aclosing(pieces):
            yield first
            async for piece in pieces:
                yield piece

    return StreamingResponse(all_pieces(), media_type="text/plain")


def _figures(app: FastAPI, parts: Parts) -> None:
    @app.get("/stats/summary")
    async def summary(request: Request) -> Response:
        only = request.query_params.get("only_cpu_and_memory", "").lower() in ("1", "true")
        try:
            return JSONResponse(await parts.summary(only))
        except CRIError as error:
            return PlainTextResponse(f"failed to list pod stats: {error}", 500)

    for path, text in parts.metrics.items():
        app.router.routes.append(Route(path, _metrics_endpoint(text), methods=["GET"]))


def _metrics_endpoint(text: Text) -> Callable[[Request], Awaitable[Response]]:
    async def metrics(request: Request) -> Response:
        try:
            return PlainTextResponse(await text(), media_type="text/plain; version=0.0.4; charset=utf-8")
        except CRIError as error:
            return PlainTextResponse(str(error), 500)

    return metrics


def _pod_list(pods: list[core_v1.Pod]) -> Response:
    items = b",".join(serialize.encode(pod) for pod in pods)
    body = b'{"kind":"PodList","apiVersion":"v1","metadata":{},"items":[' + items + b"]}"
    return Response(body, media_type="application/json")
