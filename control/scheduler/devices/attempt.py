"""One attempt to find devices for a pod: what was found on each node, and what the attempt may still cost.

The scheduler decides about a pod in one go on the event loop. A search that costs too much there is stopped, the pod is put
aside (`Unfinished`), and the search goes on beside other pods: a slice in a round of the event loop, namespaces in turn, with
dear selectors evaluated by the thread. Then the pod is decided anew, and what was found by then counts.

What was found on a node may be out of date by then. Devices that were given away meanwhile are noticed when they are reserved;
devices that came free are an event of the queue, which has the pod retried.
"""

from __future__ import annotations

import weakref
from asyncio import AbstractEventLoop, get_running_loop
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from control import inline, offload
from control.scheduler.devices import extended
from control.scheduler.devices.allocation import Question, Steps, Taken
from control.scheduler.devices.budget import Budget, SearchTimeout
from control.scheduler.devices.inventory import View
from control.scheduler.devices.requests import Wanted
from control.scheduler.framework import Unfinished
from kube.api import core_v1
from kube.errors import StatusError
from kube.serving.turns import Turns

SLICES = 1
"""Searches that go on in one round of the event loop."""
_turns: weakref.WeakKeyDictionary[AbstractEventLoop, Turns] = weakref.WeakKeyDictionary()


@dataclass(frozen=True, slots=True)
class Found:
    """A node's devices for a pod's claims."""

    node: core_v1.Node
    view: View | None = None
    claims: Sequence[Wanted] = ()
    wish: extended.Wish | None = None
    devices: list[list[Taken]] | None = None
    """None: not what they need."""
    error: Exception | None = None


class Attempt:
    """The searches of one attempt to schedule a pod."""

    def __init__(self, namespace: str, to_allocate: list[Wanted], seconds: float) -> None:
        self.to_allocate = to_allocate
        self.budget = Budget(seconds)
        self._namespace = namespace
        self._found: dict[str, Found] = {}
        self._here = inline.Allowance()

    def concerns(self, to_allocate: list[Wanted]) -> bool:
        """True where these are the claims and classes that the attempt is about; else it is about them from now on."""
        if _same(self.to_allocate, to_allocate):
            return True
        self.to_allocate = to_allocate
        self._found.clear()
        return False

    def known(self, node: str) -> Found | None:
        """Return what was found on a node."""
        return self._found.get(node)

    def forget(self, node: str) -> None:
        self._found.pop(node, None)

    def find(self, node: core_v1.Node, steps: Steps[Found]) -> Found:
        """Search a node and store the result; raises Unfinished where that costs too much on the event loop."""
        answer = self._advance(node, steps, self._here)
        if isinstance(answer, Found):
            return self._keep(answer)
        raise Unfinished(partial(self._go_on, node, steps, answer))

    def here(self, work: Callable[[], bool]) -> bool:
        """Return what a short piece of work returns; raises Unfinished where it costs too much for now."""
        try:
            with self.budget:
                return self._here.limit(work)
        except inline.TooMuchHere:
            raise Unfinished(self._rest) from None

    async def _rest(self) -> None:
        await _turn(self._namespace)
        self._here = inline.Allowance()

    def _keep(self, found: Found) -> Found:
        self._found[found.node.metadata.name or ""] = found
        return found

    def _advance(self, node: core_v1.Node, steps: Steps[Found], allowance: inline.Allowance) -> Found | Question | None:
        """Go on with a search for as long as it may; return what was found, or what has to be known."""
        try:
            with self.budget:
                return allowance.limit(lambda: next(steps))
        except StopIteration as end:
            found: Found = end.value
            return found
        except Exception as error:
            return Found(node, error=error.with_traceback(None))

    async def _go_on(self, node: core_v1.Node, steps: Steps[Found], question: Question | None) -> None:
        """Search a node to the end, and store the result."""
        answer: Found | Question | None = question
        while not isinstance(answer, Found):
            await _turn(self._namespace)
            if answer is not None:
                try:
                    await offload.evaluate(self._namespace, 0, answer.offer.evaluate, answer.selector, self.budget)
                except StatusError:
                    answer = Found(node, error=SearchTimeout("timed out trying to allocate devices"))
                    break
                await _turn(self._namespace)
            answer = self._advance(node, steps, inline.Allowance())
        self._keep(answer)
        await self._rest()


async def _turn(namespace: str) -> None:
    await _turns.setdefault(get_running_loop(), Turns(SLICES)).take(namespace)


def _same(before: list[Wanted], now: list[Wanted]) -> bool:
    return len(before) == len(now) and all(
        one.claim is other.claim
        and all(
            need.device_class is same.device_class
            for needs, others in zip(one.requests, other.requests, strict=True)
            for need, same in zip(needs, others, strict=True)
        )
        for one, other in zip(before, now, strict=True)
    )
