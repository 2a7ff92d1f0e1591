"""Charges an eviction to a PodDisruptionBudget: it uses one of the allowed disruptions, or is rejected.

The budget's status is changed with compare-and-swap before the pod goes, so that evictions at the same time cannot spend
one disruption twice. The rules are those of pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from control.event_loop.pacing import TimeSlice
from control.interfaces import compiled_selectors
from control.registry import updating
from control.registry.context import SERVER, Context
from control.registry.registry import Registry
from control.server.lookup import BY_TARGET
from control.storage.entry import Entry
from kube import errors
from kube.clock import format_time
from kube.errors import StatusError
from kube.json_object import Object

BUDGETS = "poddisruptionbudgets.policy"
MAX_DISRUPTED = 2000
_CAUSE = "DisruptionBudget"


async def budgets_of(registry: Registry, user: str, pod: Object) -> list[Object]:
    """Return the budgets that select a pod, at most two of them."""
    meta, resource = pod["metadata"], BY_TARGET[BUDGETS]
    folder = f"{resource.storage_prefix}{meta['namespace']}/"
    labels, found, time_slice = meta.get("labels") or {}, list[Object](), TimeSlice()
    for entry in registry.cached(resource).list(folder).entries:
        await time_slice.step(len(entry.data))
        read, size = partial(_selector, entry), len(entry.data)
        selector = await compiled_selectors.kept.of(user, entry.parts()["metadata"], "spec.selector", read, size)
        if selector.matches(labels):
            found.append(entry.obj)
            if len(found) == 2:
                break
    return found


def _selector(entry: Entry) -> Any:
    return entry.obj["spec"].get("selector")


async def charge(registry: Registry, user: str, pod: Object, *, dry_run: bool) -> str | None:
    """Take one disruption from the pod's budget; raises 429 if none is left and 500 for more than one budget.

    An eviction of a pod that is not ready may need no disruption: then the budget's name is returned, and the caller must
    ensure that the pod has not become ready before it is deleted.
    """
    budgets = await budgets_of(registry, user, pod)
    if not budgets:
        return None
    if len(budgets) > 1:
        message = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        raise errors.internal(message)
    budget, name = budgets[0], pod["metadata"]["name"]
    if not _ready(pod) and _unhealthy_may_go(budget):
        return str(budget["metadata"]["name"])

    async def change(found: Object | None) -> Object:
        assert found is not None
        check(found)
        status = found["status"]
        status["disruptionsAllowed"] -= 1
        status.setdefault("disruptedPods", {})[name] = format_time(registry.clock.now())
        return found

    meta = budget["metadata"]
    context = Context(SERVER, dry_run)
    try:
        await updating.update(
            registry, context, BY_TARGET[BUDGETS], meta["namespace"], meta["name"], change, subresource="status"
        )
    except StatusError as error:
        if not error.not_found:
            raise
    return None


def check(budget: Object) -> None:
    """Raise 429 or 403 if a budget allows no disruption."""
    status, name = budget.get("status") or {}, budget["metadata"]["name"]
    allowed = status.get("disruptionsAllowed") or 0
    if (status.get("observedGeneration") or 0) < (budget["metadata"].get("generation") or 0):
        raise unsettled(name)
    if allowed < 0:
        raise errors.forbidden("policy", "poddisruptionbudget", name, "pdb disruptions allowed is negative")
    if len(status.get("disruptedPods") or {}) > MAX_DISRUPTED:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise errors.forbidden("policy", "poddisruptionbudget", name, why)
    if allowed == 0:
        needed, healthy = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
        raise _refused(f"The disruption budget {name} needs {needed} healthy pods and has {healthy} currently", 0)


def unsettled(name: str) -> StatusError:
    """Return the 429 of an eviction whose budget has a status that is not current."""
    return _refused(f"The disruption budget {name} is still being processed by the server.", 10)


def _refused(why: str, retry_after: int) -> StatusError:
    error = errors.too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", retry_after)
    error.details = {"causes": [{"reason": _CAUSE, "message": why}]}
    if retry_after:
        error.details["retryAfterSeconds"] = retry_after
    return error


def _ready(pod: Object) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or []
    return any(c.get("type") == "Ready" and c.get("status") == "True" for c in conditions)


def _unhealthy_may_go(budget: Object) -> bool:
    """Return whether a pod that is not ready may go without being counted (spec.unhealthyPodEvictionPolicy)."""
    status = budget.get("status") or {}
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    desired = status.get("desiredHealthy") or 0
    return desired > 0 and (status.get("currentHealthy") or 0) >= desired
