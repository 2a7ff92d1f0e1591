"""exec, attach and portForward: from an authorized request to two spliced connections.

The runtime prepares a session on its streaming server (session_backends.py). A client that speaks SPDY is connected to it byte
for byte; a client that speaks WebSocket is translated (agent.streaming). The runtime is dialled before the client is answered,
so that every failure is still an ordinary HTTP response.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from agent.attached_clients import AttachedClient, AttachedClients, ContainerStopping
from agent.interfaces import PodLookup, PodView
from agent.runtime_records import ContainerRecord
from agent.server.session_backends import SessionBackends, SessionError
from agent.server.session_request import SessionRequest, ports_of, streams_of
from agent.server.session_slots import SessionSlots, TooManySessions
from agent.streaming import channels, idle, port_forward, remote_command, websocket
from agent.streaming.remote_command import StreamOptions
from agent.streaming.upgrade import Dial, Stream, UpgradeError, splice
from kube.api import core_v1
from kube.clock import Clock
from kube.serving.frames import SessionYield
from kube.serving.websocket import offered

# What of an SPDY client's request the runtime's server has to see; credentials stay here.
_PASSED_ON = {"connection", "upgrade", "x-stream-protocol-version"}


class Sessions:
    """The three kinds of session with the containers of this node."""

    def __init__(
        self,
        pods: PodLookup,
        backends: SessionBackends,
        clock: Clock,
        idle_seconds: float = 0.0,
        attached: AttachedClients | None = None,
    ) -> None:
        """`idle_seconds`: a session over which nothing goes for so long is ended; 0 is never."""
        self._attached = attached or AttachedClients()
        self._pods = pods
        self._backends = backends
        self._clock, self._idle_seconds = clock, idle_seconds
        self._watching: set[asyncio.Task[None]] = set()
        self._session_yield = SessionYield()
        self.slots = SessionSlots()

    def _take_over(self, request: SessionRequest) -> Stream:
        """Take the connection away from HTTP, and see to it that it is not idle for too long."""
        stream = request.take_over()
        watch = idle.close_when_idle(stream, self._idle_seconds, self._clock)
        task = asyncio.create_task(watch, name="idle session")
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return stream

    async def exec(self, request: SessionRequest, namespace: str, pod: str, uid: str, container: str) -> None:
        """Run a command in a container. Raise SessionError, UpgradeError or OSError before anything was answered."""
        view = self._view(namespace, pod, uid)
        found = self._container(view, container)
        options = streams_of(request, tty=request.flag("tty"))
        command = request.query.get("command", [])
        if not command:
            raise SessionError(400, "you must specify a command")
        request.upgrade()
        dial = await self._backends.exec(view, found, command, options)
        await self._remote_command(request, dial, options, AttachedClient())

    async def attach(self, request: SessionRequest, namespace: str, pod: str, uid: str, container: str) -> None:
        """Attach to a container's first process, which has a terminal if its spec has tty. Raise as `exec` does."""
        view = self._view(namespace, pod, uid)
        found = self._container(view, container)
        spec = view.pod.spec
        everything: list[core_v1.Container | core_v1.EphemeralContainer] = [*spec.containers, *spec.init_containers]
        everything += spec.ephemeral_containers
        tty = next((bool(c.tty) for c in everything if c.name == container), False)
        options = streams_of(request, tty=tty)
        request.upgrade()
        too_late = "Internal error occurred: error attaching to container: container is in CONTAINER_EXITED state"
        try:
            with self._attached.attach(found.id) as client:
                dial = await self._backends.attach(view, found, options)
                await self._remote_command(request, dial, options, client, too_late)
        except ContainerStopping as error:
            raise SessionError(500, str(error)) from error

    async def port_forward(self, request: SessionRequest, namespace: str, pod: str, uid: str) -> None:
        """Forward ports of a pod. Raise as `exec` does."""
        view = self._view(namespace, pod, uid)
        if view.sandbox is None or not view.sandbox.ready:
            raise SessionError(500, f"sandbox not found for pod {pod}_{namespace}")
        protocol = request.upgrade()
        ports = ports_of(request) if protocol == "websocket" else []
        dial = await self._backends.port_forward(view, ports)
        if protocol == "spdy/3.1":
            await self._pass_through(request, dial, AttachedClient())
            return
        found = offered(request.headers)
        tunnelled = port_forward.TUNNEL_PROTOCOL in found
        spoken = None if tunnelled else channels.choose(found)
        if not tunnelled and (spoken is None or not ports):
            raise SessionError(400, "no supported port forwarding protocol, or no ports, in the request")
        backend = await port_forward.connect(dial)
        try:
            name = port_forward.TUNNEL_PROTOCOL if spoken is None else spoken.name or None
            socket = await self._accept(request, name, AttachedClient())
        except BaseException:
            await backend.close()
            raise
        if spoken is None:
            await port_forward.tunnel(socket, backend)
        else:
            await port_forward.forward(socket, spoken, backend, ports)

    async def _remote_command(
        self,
        request: SessionRequest,
        dial: Dial,
        options: StreamOptions,
        client: AttachedClient,
        too_late: str = "",
    ) -> None:
        if request.upgrade() == "spdy/3.1":
            await self._pass_through(request, dial, client)
            return
        spoken = channels.choose(offered(request.headers))
        if spoken is None:
            raise SessionError(400, "unable to negotiate a WebSocket subprotocol")
        backend = await remote_command.connect(dial)
        try:
            client.connected(backend.writer)
            socket = await self._accept(request, spoken.name or None, client)
        except BaseException:
            await backend.close()
            raise
        await remote_command.translate(socket, spoken, backend, options, too_late=too_late)

    async def _accept(
        self, request: SessionRequest, subprotocol: str | None, client: AttachedClient
    ) -> websocket.WebSocket:
        stream = self._take_over(request)
        client.accepted(stream.writer)
        return await websocket.accept(stream, request.target, request.headers, subprotocol, self._session_yield)

    async def _pass_through(self, request: SessionRequest, dial: Dial, attached: AttachedClient) -> None:
        headers = [(name, value) for name, value in request.headers if name in _PASSED_ON]
        backend, head = await dial(request.method, [*headers, ("content-length", "0")])
        try:
            client = self._take_over(request)
            attached.connected(backend.writer)
            attached.accepted(client.writer)
            client.writer.write(head.raw)
        except BaseException:
            await backend.close()
            raise
        await splice(client, backend)

    def _view(self, namespace: str, pod: str, uid: str) -> PodView:
        view = self._pods.view(namespace, pod)
        if view is None or (uid and view.pod.metadata.uid != uid):
            raise SessionError(404, "pod does not exist")
        return view

    def _container(self, view: PodView, name: str) -> ContainerRecord:
        found = view.running(name)
        if found is None:
            raise SessionError(500, f'container not found ("{name}")')
        return found


class SessionEndpoint:
    """One of the sessions as an ASGI application behind a route with path parameters."""

    def __init__(self, session: Callable[..., Awaitable[None]], slots: SessionSlots, *, with_container: bool) -> None:
        self._session, self._slots = session, slots
        self._with_container = with_container

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold the session, or answer why there is none."""
        path = scope["path_params"]
        arguments = [path["namespace"], path["pod"], path.get("uid", "")]
        if self._with_container:
            arguments.append(path["container"])
        try:
            with self._slots.slot(path["namespace"]):
                await self._session(SessionRequest.of(scope), *arguments)
        except TooManySessions as error:
            await answer(send, 429, str(error))
        except SessionError as error:
            await answer(send, error.status, str(error))
        except UpgradeError as error:
            await answer(send, error.head.status, error.body.decode(errors="replace"))
        except OSError as error:
            await answer(send, 500, str(error))
        except websocket.HandshakeError:
            pass  # answered by the handshake itself


async def answer(send: Send, status: int, text: str) -> None:
    """Send a short text."""
    body = text.encode(errors="replace")
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def session_routes(sessions: Sessions) -> list[Route]:
    """Return the routes of sessions, with and without the pod's UID."""
    routes = []
    for name, session, with_container in (
        ("exec", sessions.exec, True),
        ("attach", sessions.attach, True),
        ("portForward", sessions.port_forward, False),
    ):
        tail = "/{container}" if with_container else ""
        endpoint = SessionEndpoint(session, sessions.slots, with_container=with_container)
        for path in (f"/{name}/{{namespace}}/{{pod}}{tail}", f"/{name}/{{namespace}}/{{pod}}/{{uid}}{tail}"):
            routes.append(Route(path, endpoint, methods=["GET", "POST"]))
    return routes
