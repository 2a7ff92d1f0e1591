"""Handlers of a cluster's pods: functions that serve commands, attached clients and connections to ports."""

from __future__ import annotations

import inspect
import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from wherry.testing.errors import ClusterError
from wherry.testing.nodes.exec_calls import AsyncExec, Exec, Result
from wherry.testing.nodes.scripts import matches

ExecHandler: TypeAlias = Callable[[Exec], Result] | Callable[[AsyncExec], Awaitable[Result]]
"""A function that runs in a thread, or a coroutine function that runs on the cluster's event loop."""
PortHandler: TypeAlias = Callable[[Any, Any], Any] | tuple[str, int]
"""A function of a reader and a writer: binary files in a thread, or asyncio's streams. Or a loopback address."""


@dataclass(frozen=True, slots=True)
class Handler:
    """One handler, of pods and containers by patterns; port 0 is that of commands, -1 that of attached clients."""

    pod: str
    container: str
    port: int
    call: Any


EXEC, ATTACH = 0, -1


class Handlers:
    """The handlers of a cluster; of several that match a container the newest holds."""

    def __init__(self) -> None:
        self._handlers: list[Handler] = []

    def add_exec(self, pod: str, handler: ExecHandler, container: str = "*") -> None:
        """Run commands in containers of matching pods. Raise ClusterError if it is no function."""
        self._handlers.append(Handler(pod, container, EXEC, _function(pod, handler)))

    def add_attach(self, pod: str, handler: ExecHandler, container: str = "*") -> None:
        """Serve clients that attach to containers of matching pods. Raise ClusterError if it is no function."""
        self._handlers.append(Handler(pod, container, ATTACH, _function(pod, handler)))

    def add_port(self, pod: str, port: int, handler: PortHandler) -> None:
        """Serve connections to a port of matching pods. Raise ClusterError for what is no port or no handler."""
        if not 0 < port < 65536:
            raise ClusterError(f"{port} is no port: it is a number from 1 to 65535")
        if isinstance(handler, tuple):
            _check_loopback(handler)
        else:
            _function(pod, handler)
        self._handlers.append(Handler(pod, "*", port, handler))

    def exec(self, namespace: str, pod: str, container: str) -> ExecHandler | None:
        """Return the handler of commands in a container."""
        found: ExecHandler | None = self._find(namespace, pod, container, EXEC)
        return found

    def attach(self, namespace: str, pod: str, container: str) -> ExecHandler | None:
        """Return the handler of clients that attach to a container."""
        found: ExecHandler | None = self._find(namespace, pod, container, ATTACH)
        return found

    def port(self, namespace: str, pod: str, port: int) -> PortHandler | None:
        """Return the handler of a pod's port."""
        found: PortHandler | None = self._find(namespace, pod, "*", port)
        return found

    def _find(self, namespace: str, pod: str, container: str, port: int) -> Any:
        for each in reversed(self._handlers):
            if each.port == port and matches(each.pod, namespace, pod) and matches(each.container, "", container):
                return each.call
        return None

    def saved(self) -> list[Handler]:
        """Return all handlers, for `restore`."""
        return list(self._handlers)

    def restore(self, saved: list[Handler]) -> None:
        """Make the handlers those that `saved` returned."""
        self._handlers = list(saved)


def is_coroutine_function(handler: Any) -> bool:
    """Return whether a handler is one of asyncio's."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(handler.__call__)


def _function(pod: str, handler: Any) -> Any:
    if not callable(handler):
        raise ClusterError(f"the handler for {pod!r} is no function: {handler!r}")
    return handler


def _check_loopback(address: tuple[str, int]) -> None:
    try:
        host, port = address
        allowed = host == "localhost" or ipaddress.ip_address(host).is_loopback
        allowed = allowed and 0 < int(port) < 65536
    except (TypeError, ValueError):
        allowed = False
    if not allowed:
        raise ClusterError(f"{address!r} is no loopback address with a port: write for example ('127.0.0.1', 8080)")
