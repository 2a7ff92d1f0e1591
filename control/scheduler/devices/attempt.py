"""Searches for devices in one attempt to schedule a pod: the results by node, and the remaining budget.

A scheduling cycle runs without interruption on the event loop. A search that exceeds the cost limit there is stopped, and the
pod is deferred (`Unfinished`) while the search continues: a slice in each iteration of the event loop, round robin over
namespaces, with expensive selectors evaluated in a thread. Then the scheduling cycle is repeated with the results so far.

A result may be outdated by then. Devices that were allocated meanwhile are noticed when they are reserved; devices that were
released emit an event of the queue, which retries the pod.
"""

from __future__ import annotations

import weakref
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from control.event_loop import inline, offload
from control.scheduler.devices import extended
from control.scheduler.devices.allocation import SearchSteps, SelectorEvaluation
from control.scheduler.devices.budget import SearchBudget, SearchTimeout
from control.scheduler.devices.device_usage import DeviceResult
from control.scheduler.devices.inventory import View
from control.scheduler.devices.requests import ClaimToAllocate
from control.scheduler.unfinished import Unfinished
from kube.api import core_v1
from kube.errors import StatusError
from kube.serving.fair_queue import FairQueue

SLICES = 1
"""Searches that continue in one iteration of the event loop."""
_queues: weakref.WeakKeyDictionary[AbstractEventLoop, FairQueue] = weakref.WeakKeyDictionary()


class NodeAllocation(msgspec.Struct, frozen=True):
    """Result of the search on one node: the devices for a pod's claims."""

    node: core_v1.Node
    view: View | None = None
    claims: Sequence[ClaimToAllocate] = ()
    extended_requests: extended.ExtendedResourceRequests | None = None
    devices: list[list[DeviceResult]] | None = None
    """None if no devices of this node satisfy the claims."""
    since: int = -1
    """The state of the allocated devices when the search began (AllocatedDevices.changes)."""
    error: Exception | None = None


class Attempt:
    """The searches of one attempt to schedule a pod."""

    def __init__(self, namespace: str, to_allocate: list[ClaimToAllocate], seconds: float) -> None:
        self.to_allocate = to_allocate
        self.budget = SearchBudget(seconds, owner=namespace)
        self._namespace = namespace
        self._found: dict[str, NodeAllocation] = {}
        self._here = inline.Allowance()

    def concerns(self, to_allocate: list[ClaimToAllocate]) -> bool:
        """True if the attempt was started with these claims and classes; otherwise it restarts with them."""
        if _same(self.to_allocate, to_allocate):
            return True
        self.to_allocate = to_allocate
        self._found.clear()
        return False

    def known(self, node: str) -> NodeAllocation | None:
        """Return the result of a node, if there is one."""
        return self._found.get(node)

    def forget(self, node: str) -> None:
        self._found.pop(node, None)

    def find(self, node: core_v1.Node, steps: SearchSteps[NodeAllocation]) -> NodeAllocation:
        """Search a node and store the result; raises Unfinished if that exceeds the cost limit of the event loop."""
        answer = self._advance(node, steps, self._here)
        if isinstance(answer, NodeAllocation):
            return self._keep(answer)
        raise Unfinished(partial(self._resume, node, steps, answer))

    def here(self, work: Callable[[], bool]) -> bool:
        """Return the result of `work`; raises Unfinished if it exceeds the cost limit of the event loop."""
        try:
            with self.budget:
                return self._here.limit(work)
        except inline.TooMuchHere:
            raise Unfinished(self._rest) from None

    async def _rest(self) -> None:
        await _yield_to_loop(self._namespace)
        self._here = inline.Allowance()

    def _keep(self, found: NodeAllocation) -> NodeAllocation:
        self._found[found.node.metadata.name or ""] = found
        return found

    def _advance(
        self, node: core_v1.Node, steps: SearchSteps[NodeAllocation], allowance: inline.Allowance
    ) -> NodeAllocation | SelectorEvaluation | None:
        """Continue a search up to the limits; return its result, or the selector evaluation that it waits for."""
        try:
            with self.budget:
                return allowance.limit(lambda: next(steps))
        except StopIteration as end:
            found: NodeAllocation = end.value
            return found
        except Exception as error:
            return NodeAllocation(node, error=error.with_traceback(None))

    async def _resume(
        self, node: core_v1.Node, steps: SearchSteps[NodeAllocation], evaluation: SelectorEvaluation | None
    ) -> None:
        """Complete the search of a node, and store the result."""
        answer: NodeAllocation | SelectorEvaluation | None = evaluation
        while not isinstance(answer, NodeAllocation):
            await _yield_to_loop(self._namespace)
            if answer is not None:
                try:
                    await offload.evaluate(self._namespace, 0, answer.device.evaluate, answer.selector, self.budget)
                except StatusError:
                    answer = NodeAllocation(node, error=SearchTimeout("timed out trying to allocate devices"))
                    break
                await _yield_to_loop(self._namespace)
            answer = self._advance(node, steps, inline.Allowance())
        self._keep(answer)
        await self._rest()


async def _yield_to_loop(namespace: str) -> None:
    await _queues.setdefault(get_running_loop(), FairQueue(SLICES)).wait(namespace)


def _same(before: list[ClaimToAllocate], now: list[ClaimToAllocate]) -> bool:
    return len(before) == len(now) and all(
        one.claim is other.claim
        and all(
            alternative.device_class is same.device_class
            for alternatives, others in zip(one.requests, other.requests, strict=True)
            for alternative, same in zip(alternatives, others, strict=True)
        )
        for one, other in zip(before, now, strict=True)
    )
