"""Lifecycle hooks: exec in the container, an HTTP request to it, or a sleep (pkg/kubelet/lifecycle/handlers.go)."""

from __future__ import annotations

from agent import commands, http_get, http_request
from agent.http_response import ResponseError
from agent.interfaces import HookError
from agent.probes.http import headers_of
from agent.threads import Owner
from cri.client import Client
from cri.errors import CRIError
from cri.texts import shortened
from kube import tls_settings
from kube.api import core_v1
from kube.clock import SYSTEM, Clock
from kube.loop_timeout import LoopTimeout

HTTP_SECONDS = 30.0
USER_AGENT = "kube-lifecycle/1.36"
LONGEST = 1024
"""Characters of a failed hook's message, which the log and the container's status contain (upstream has no limit)."""
_LONGEST_COMMAND = 400


class Hooks:
    """Runs the postStart and preStop handlers of containers."""

    def __init__(self, runtime: Client, *, clock: Clock = SYSTEM) -> None:
        self._runtime, self._clock = runtime, clock

    async def run(
        self,
        pod: core_v1.Pod,
        pod_ip: str,
        container: core_v1.Container,
        container_id: str,
        handler: core_v1.LifecycleHandler,
    ) -> None:
        """Run the handler to its end. Raise HookError."""
        try:
            if handler.exec is not None:
                await self._exec(Owner.of(pod), container_id, handler.exec.command)
            elif handler.http_get is not None:
                await self._http_get(Owner.of(pod), pod_ip, container, handler.http_get)
            elif handler.sleep is not None:
                await self._clock.sleep(handler.sleep.seconds)
            else:
                raise HookError("invalid handler: handler has no supported action")
        except HookError as error:
            raise HookError(shortened(str(error), LONGEST)) from error
        except Exception as error:
            # A pod's author writes the hook: whatever is wrong with it (a host that is no name: UnicodeError) is its failure.
            raise HookError(shortened(f"{type(error).__name__}: {error}", LONGEST)) from error

    async def _exec(self, owner: Owner, container_id: str, command: list[str]) -> None:
        try:
            ended = await commands.run(self._runtime.runtime, owner.namespace, container_id, command)
        except CRIError as error:
            raise HookError(str(error)) from error
        if ended.exit_code != 0:
            shown = shortened(" ".join(command), _LONGEST_COMMAND)
            raise HookError(f"command '{shown}' exited with {ended.exit_code}: {ended.output}")

    async def _http_get(
        self, owner: Owner, pod_ip: str, container: core_v1.Container, action: core_v1.HTTPGetAction
    ) -> None:
        url = http_request.url_of(action, pod_ip, port_number(container, action.port))
        request = http_request.form(url, headers_of(action.http_headers, USER_AGENT))
        tls = tls_settings.unchecked()  # the container's certificate is its own, as with upstream's hooks
        try:
            answer = await http_get.get(request, owner, tls, LoopTimeout(HTTP_SECONDS), 0)
        except (http_get.ConnectError, ResponseError, OSError, EOFError) as error:
            raise HookError(f"HTTP hook {url}: {error}") from error
        if answer.status >= 400:
            raise HookError(f"HTTP hook {url} answered {answer.status}")


def port_number(container: core_v1.Container, port: int | str) -> int:
    """Return a port given by number or by the name of one of the container's. Raise HookError."""
    if isinstance(port, int):
        return port
    named = next((p.container_port for p in container.ports if p.name == port), None)
    if named is not None:
        return named
    if port.isascii() and port.isdigit() and len(port) < 6:
        return int(port)
    raise HookError(f"couldn't find port: {port}")
