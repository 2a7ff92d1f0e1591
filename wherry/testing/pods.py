"""Control of the simulated pods and nodes of a cluster that runs in a thread."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Literal, Protocol, TypeVar

from wherry.testing.async_pods import AsyncNode, AsyncPods
from wherry.testing.nodes.handlers import ExecHandler, PortHandler
from wherry.testing.nodes.log import StreamName
from wherry.testing.nodes.scripts import Step

T = TypeVar("T")


class Call(Protocol):
    """Calls a function on the cluster's event loop and returns its result."""

    def __call__(self, function: Callable[[], T]) -> T: ...


class Run(Protocol):
    """Runs a coroutine on the cluster's event loop and returns its result."""

    def __call__(self, work: Coroutine[Any, Any, T]) -> T: ...


class Pods:
    """Control of simulated pods."""

    def __init__(self, call: Call, pods: AsyncPods) -> None:
        self._call, self._pods = call, pods

    def script(self, pod: str, steps: Step | Sequence[Step], *, container: str = "*", optional: bool = False) -> None:
        """Set what containers of pods do at their starts; `pod` is a pattern such as `web-*` or `namespace/web-*`.

        At the end of the test it is an error if no such container has started, unless the script is optional.
        """
        self._call(lambda: self._pods.script(pod, steps, container=container, optional=optional))

    def check_scripts(self) -> None:
        """Raise ClusterError if a script was added for containers of which none has started since."""
        self._call(self._pods.check_scripts)

    def set_ready(self, pod: str, *, ready: bool = True, container: str = "", namespace: str = "default") -> None:
        """Set the outcome of a running pod's readiness probes from now on."""
        self._call(lambda: self._pods.set_ready(pod, ready=ready, container=container, namespace=namespace))

    def kill(
        self, pod: str, container: str = "", *, code: int = 137, reason: str = "", namespace: str = "default"
    ) -> None:
        """End a container of a running pod, by default its first; `reason` as the runtime gives it (OOMKilled)."""
        self._call(lambda: self._pods.kill(pod, container, code=code, reason=reason, namespace=namespace))

    def logs(self, pod: str, container: str = "", *, previous: bool = False, namespace: str = "default") -> str:
        """Return what a container has written."""
        return self._call(lambda: self._pods.logs(pod, container, previous=previous, namespace=namespace))

    def log(
        self, pod: str, text: str, container: str = "", *, stream: StreamName = "stdout", namespace: str = "default"
    ) -> None:
        """Add lines to the log of a running container, by default the pod's first."""
        self._call(lambda: self._pods.log(pod, text, container, stream=stream, namespace=namespace))

    def on_exec(self, pod: str, handler: ExecHandler, *, container: str = "*") -> None:
        """Run commands (`kubectl exec`) by a function of `Exec`, each call in a new thread."""
        self._call(lambda: self._pods.on_exec(pod, handler, container=container))

    def on_attach(self, pod: str, handler: ExecHandler, *, container: str = "*") -> None:
        """Serve `kubectl attach` by a function as `on_exec` does. Without one, clients see what is added to the log."""
        self._call(lambda: self._pods.on_attach(pod, handler, container=container))

    def on_port(self, pod: str, port: int, handler: PortHandler) -> None:
        """Serve `kubectl port-forward` by a function of a reader and a writer, or by a server on loopback (host, port)."""
        self._call(lambda: self._pods.on_port(pod, port, handler))


class Node:
    """A simulated node."""

    def __init__(self, call: Call, run: Run, node: AsyncNode) -> None:
        self._call, self._run, self._node, self.name = call, run, node, node.name

    def fail(self) -> None:
        """Take its power: containers end, the node reports nothing."""
        self._call(self._node.fail)

    def partition(self) -> None:
        """Cut it off from the API server: containers run on, the node reports nothing."""
        self._call(self._node.partition)

    def recover(self) -> None:
        """Undo `fail` and `partition`."""
        self._run(self._node.recover())

    def pressure(self, kind: Literal["memory", "disk", "pid"], *, on: bool = True) -> None:
        """Report pressure, or its end."""
        self._run(self._node.pressure(kind, on=on))
