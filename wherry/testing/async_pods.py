"""Control of the simulated pods and nodes of a cluster, on its event loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

from wherry.testing.errors import ClusterError
from wherry.testing.nodes.handlers import ExecHandler, PortHandler
from wherry.testing.nodes.log import StreamName
from wherry.testing.nodes.scripts import Step

if TYPE_CHECKING:
    from wherry.testing.engine import Engine
    from wherry.testing.nodes.nodes import SimulatedNodes


class AsyncPods:
    """Control of simulated pods."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        self._engine = engine

    def script(self, pod: str, steps: Step | Sequence[Step], *, container: str = "*", optional: bool = False) -> None:
        """Set what containers of pods do at their starts; `pod` is a pattern such as `web-*` or `namespace/web-*`.

        At the end of the test it is an error if no such container has started, unless the script is optional.
        """
        self._engine().scripts.add(pod, steps, container, optional=optional)

    def check_scripts(self) -> None:
        """Raise ClusterError if a script was added for containers of which none has started since."""
        self._engine().scripts.check_used()

    def set_ready(self, pod: str, *, ready: bool = True, container: str = "", namespace: str = "default") -> None:
        """Set the outcome of a running pod's readiness probes from now on."""
        pods = self._engine().nodes.pods
        pods.get(namespace, pod).set_ready(ready=ready, container=container)
        pods.woken(namespace, pod)

    def kill(
        self, pod: str, container: str = "", *, code: int = 137, reason: str = "", namespace: str = "default"
    ) -> None:
        """End a container of a running pod, by default its first; `reason` as the runtime gives it (OOMKilled)."""
        pods = self._engine().nodes.pods
        found = pods.get(namespace, pod)
        name = container or found.pod.spec.containers[0].name
        if not found.instances.kill(name, code, reason):
            raise ClusterError(f"the container {name!r} of the pod {namespace}/{pod} does not run")
        pods.woken(namespace, pod)

    def logs(self, pod: str, container: str = "", *, previous: bool = False, namespace: str = "default") -> str:
        """Return what a container has written."""
        found = self._engine().nodes.pods.get(namespace, pod)
        name = container or found.pod.spec.containers[0].name
        text = found.instances.logs(name, previous=previous)
        if text is None:
            raise ClusterError(f"the container {name!r} of the pod {namespace}/{pod} has not started")
        return text

    def log(
        self, pod: str, text: str, container: str = "", *, stream: StreamName = "stdout", namespace: str = "default"
    ) -> None:
        """Add lines to the log of a running container, by default the pod's first."""
        found = self._engine().nodes.pods.get(namespace, pod)
        name = container or found.pod.spec.containers[0].name
        if stream not in ("stdout", "stderr"):
            raise ClusterError(f"no stream {stream!r}: there are stdout and stderr")
        if not found.instances.write_log(name, text, stream):
            raise ClusterError(f"the container {name!r} of the pod {namespace}/{pod} does not run")

    def on_exec(self, pod: str, handler: ExecHandler, *, container: str = "*") -> None:
        """Run commands (`kubectl exec`) by a function of `Exec`, or a coroutine function of `AsyncExec`."""
        self._engine().handlers.add_exec(pod, handler, container)

    def on_attach(self, pod: str, handler: ExecHandler, *, container: str = "*") -> None:
        """Serve `kubectl attach` by a function as `on_exec` does. Without one, clients see what is added to the log."""
        self._engine().handlers.add_attach(pod, handler, container)

    def on_port(self, pod: str, port: int, handler: PortHandler) -> None:
        """Serve `kubectl port-forward` by a function of a reader and a writer, or by a server on loopback (host, port)."""
        self._engine().handlers.add_port(pod, port, handler)


class AsyncNode:
    """A simulated node."""

    def __init__(self, nodes: SimulatedNodes, name: str) -> None:
        """Raise ClusterError if there is no such node."""
        self._nodes, self.name = nodes, nodes.get(name).name

    def fail(self) -> None:
        """Take its power: containers end, the node reports nothing."""
        self._nodes.fail(self.name)

    def partition(self) -> None:
        """Cut it off from the API server: containers run on, the node reports nothing."""
        self._nodes.partition(self.name)

    async def recover(self) -> None:
        """Undo `fail` and `partition`."""
        await self._nodes.recover(self.name)

    async def pressure(self, kind: Literal["memory", "disk", "pid"], *, on: bool = True) -> None:
        """Report pressure, or its end."""
        await self._nodes.set_pressure(self.name, kind, on=on)
