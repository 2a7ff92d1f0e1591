"""Sessions with simulated containers, for the kubelet's API (agent/server/sessions.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from agent.interfaces import PodView
from agent.lifecycle import find_container
from agent.runtime_records import ContainerRecord
from agent.server.log_lines import parse
from agent.server.session_backends import SessionError
from agent.streaming.port_forward import SPDY_PROTOCOL
from agent.streaming.remote_command import StreamOptions
from agent.streaming.upgrade import Dial, Stream
from wherry.testing.kubelet import command_streams, handler_calls
from wherry.testing.kubelet.command_streams import SUCCESS, CommandStreams
from wherry.testing.kubelet.handler_calls import Command
from wherry.testing.kubelet.logs import LINES
from wherry.testing.kubelet.node_pods import NodePods
from wherry.testing.kubelet.ports import PortForward
from wherry.testing.kubelet.spdy_server import dial_to
from wherry.testing.kubelet.tasks import Tasks
from wherry.testing.nodes.handlers import Handlers
from wherry.testing.nodes.log import ContainerLog

COMMAND_PROTOCOL = "v4.channel.k8s.io"


class SimulatedSessions:
    """The sessions with a node's containers."""

    def __init__(self, pods: NodePods, handlers: Handlers, tasks: Tasks) -> None:
        self._pods, self._handlers, self._tasks = pods, handlers, tasks

    async def exec(
        self, view: PodView, record: ContainerRecord, command: Sequence[str], options: StreamOptions
    ) -> Dial:
        """Run a command by the handler of the container. Raise SessionError without one."""
        namespace, name = _names(view)
        handler = self._handlers.exec(namespace, name, record.name)
        if handler is None:
            # Without a colon and a space: kubectl would read YAML.
            add = f'cluster.pods.on_exec("{name}", handler)'
            raise SessionError(500, f"no handler for commands in the pod {namespace}/{name} (add one with {add})")
        called = Command(namespace, name, record.name, tuple(command))
        return self._command(options, partial(handler_calls.run, handler, called))

    async def attach(self, view: PodView, record: ContainerRecord, options: StreamOptions) -> Dial:
        """Attach to a container: its handler, or what is added to its log. Raise SessionError if the container is gone."""
        namespace, name = _names(view)
        container, found = self._pods.container(record.id), find_container(view.pod, record.name)
        if container is None or found is None:
            raise SessionError(404, f"container {record.name} not found in pod {name}_{namespace}")
        handler = self._handlers.attach(namespace, name, record.name)
        if handler is not None:
            spec = found[0]
            called = Command(namespace, name, record.name, (*spec.command, *spec.args))
            return self._command(options, partial(handler_calls.run, handler, called))
        return self._command(options, partial(_follow, container.log, container.log.end))

    async def port_forward(self, view: PodView, ports: Sequence[int]) -> Dial:
        """Forward connections to the handlers of ports."""
        namespace, name = _names(view)

        async def serve(stream: Stream) -> None:
            await PortForward(stream, name, partial(self._handlers.port, namespace, name)).serve()

        return dial_to(serve, SPDY_PROTOCOL, self._tasks)

    def _command(self, options: StreamOptions, run: Callable[[CommandStreams], Awaitable[bytes]]) -> Dial:
        async def serve(stream: Stream) -> None:
            await command_streams.serve(stream, options, run)

        return dial_to(serve, COMMAND_PROTOCOL, self._tasks)


async def _follow(log: ContainerLog, position: int, streams: CommandStreams) -> bytes:
    """Send what is added to a log until its container ends."""
    while True:
        lines, position = log.after(position, LINES)
        for line in map(parse, lines):
            await streams.write(line.stream.decode(), line.text)
        if not lines:
            if log.closed:
                return SUCCESS
            await log.changed()


def _names(view: PodView) -> tuple[str, str]:
    return view.pod.metadata.namespace or "", view.pod.metadata.name or ""
