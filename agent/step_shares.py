"""CPU time that the steps of work on the pods of a namespace may take (kube/step_limit.py)."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any, TypeVar

from kube.fair_steps import FairSteps
from kube.step_limit import Limit, limited
from kube.step_shares import Shares

T = TypeVar("T")

STEP_SECONDS = 3.0
"""CPU time for which work on a pod may hold the event loop at once."""
SHARE, PAUSE = 0.2, 60.0
"""Part of all time that the steps for one namespace's pods may take; seconds until the next one after one was stopped."""
ITERATION_SECONDS = 0.005
"""CPU time of the steps of all pods in one iteration of the event loop, before the next one."""
shares = Shares("pods", STEP_SECONDS, SHARE, PAUSE, FairSteps(ITERATION_SECONDS), every_step=True)


def charged(work: Coroutine[Any, Any, T], namespace: str) -> Awaitable[T]:
    """Return what `work` returns, whose steps delay the next sync of the namespace's pods, and which nothing stops."""
    limit = Limit(shares, namespace)
    limit.stops = False
    return limited(work, limit)
