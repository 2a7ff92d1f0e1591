"""Lists all sandboxes and containers of the runtime, in parts where one list is too large for a message.

A part that fails fails the whole: what decides by these lists that nothing uses something needs all of them.
"""

from __future__ import annotations

import logging

from cri.errors import MessageTooLargeError
from cri.messages import Container, PodSandbox, PodSandboxState
from cri.runtime_service import RuntimeService

log = logging.getLogger(__name__)


async def everything(runtime: RuntimeService) -> tuple[list[PodSandbox], list[Container]]:
    """List sandboxes and containers. Raise CRIError."""
    return await sandboxes(runtime), await containers(runtime)


async def sandboxes(runtime: RuntimeService) -> list[PodSandbox]:
    """List all sandboxes, those that are ready and the others apart if they are too many. Raise CRIError."""
    try:
        return await runtime.list_pod_sandboxes()
    except MessageTooLargeError as error:
        log.warning("the runtime's list of sandboxes is too large, it is read in parts: %s", error)
    states = PodSandboxState.SANDBOX_READY, PodSandboxState.SANDBOX_NOTREADY
    return [sandbox for state in states for sandbox in await runtime.list_pod_sandboxes(state=state)]


async def containers(runtime: RuntimeService) -> list[Container]:
    """List all containers, those of each sandbox apart if they are too many. Raise CRIError."""
    try:
        return await runtime.list_containers()
    except MessageTooLargeError as error:
        log.warning("the runtime's list of containers is too large, it is read in parts: %s", error)
    found: list[Container] = []
    for sandbox in await sandboxes(runtime):
        found += await runtime.list_containers(sandbox_id=sandbox.id)
    return found
