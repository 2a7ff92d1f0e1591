"""Effective resource requests and limits of a pod.

Containers add up; init containers run one after another, so only the largest counts, together with the sidecars started
before it; overhead comes on top, and pod-level resources replace the sum. Upstream: component-helpers/resource.
"""

from __future__ import annotations

from kube import quantity
from kube.api import core_v1
from kube.remembering import remembered

Amounts = dict[str, int]
"""Resource name to amount: millicores for cpu, whole units (bytes, pieces) for the rest."""


@remembered(8192)
def amount(name: str, value: str | int | float) -> int:
    """Return one quantity in the unit of its resource."""
    return quantity.milli(value) if name == "cpu" else quantity.value(value)


def amounts(resources: dict[str, str | int | float]) -> Amounts:
    return {name: amount(name, value) for name, value in resources.items()}


def pod_requests(pod: core_v1.Pod, defaults: Amounts | None = None) -> Amounts:
    """Return the pod's requests.

    With `defaults` (for scoring) they are of those resources alone, which stand in for what a container does not ask for.
    Of a pod that is being resized the most counts: what it asks for, what it was promised, and what it has; but not what it
    asks for where its node can never give it (upstream: PodRequests with UseStatusResources).
    """
    return _total(pod, defaults or {}, limits=False)


def held(pod: core_v1.Pod) -> dict[str, tuple[object, object]]:
    """Return what the containers of a pod were promised and have, by name; empty until its node has told."""
    statuses = [*pod.status.container_statuses, *pod.status.init_container_statuses]
    return {s.name: (s.allocated_resources, s.resources) for s in statuses if s.resources is not None}


def is_infeasible(pod: core_v1.Pod) -> bool:
    """True where a pod asks for a resize that its node can never give it."""
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)


def pod_limits(pod: core_v1.Pod) -> Amounts:
    """Return the pod's limits."""
    return _total(pod, {}, limits=True)


def _of(container: core_v1.Container, defaults: Amounts, limits: bool) -> Amounts:
    resources = container.resources
    if resources is None:
        return defaults
    given = resources.limits if limits else resources.requests
    if defaults:
        return {name: amount(name, given[name]) if name in given else usual for name, usual in defaults.items()}
    return amounts(given)


def _resized(pod: core_v1.Pod, defaults: Amounts) -> dict[str, Amounts]:
    """Return the requests of those containers of which the node has told what they have."""
    found: dict[str, Amounts] = {}
    wishes = {} if is_infeasible(pod) else {c.name: c for c in [*pod.spec.containers, *pod.spec.init_containers]}
    for status in [*pod.status.container_statuses, *pod.status.init_container_statuses]:
        if status.resources is None:
            continue
        most = amounts(status.resources.requests)
        _raise(most, amounts(status.allocated_resources))
        wish = wishes.get(status.name)
        if wish is not None and wish.resources is not None:
            _raise(most, amounts(wish.resources.requests))
        found[status.name] = {name: most.get(name, usual) for name, usual in defaults.items()} if defaults else most
    return found


def _total(pod: core_v1.Pod, defaults: Amounts, *, limits: bool) -> Amounts:
    spec = pod.spec
    total: Amounts = {}
    told = _resized(pod, defaults) if not limits and pod.status.container_statuses else {}
    for container in spec.containers:
        add(total, told.get(container.name) or _of(container, defaults, limits))
    if spec.init_containers:
        sidecars: Amounts = {}
        peak: Amounts = {}
        for container in spec.init_containers:
            own = told.get(container.name) or _of(container, defaults, limits)
            if container.restart_policy == "Always":
                add(total, own)
                add(sidecars, own)
            else:
                # Of what it does not name itself the sidecars have no more now than in the end, which is in the total.
                _raise(peak, {k: value + sidecars.get(k, 0) for k, value in own.items()})
        _raise(total, peak)
    if spec.resources is not None:
        total.update(amounts(spec.resources.limits if limits else spec.resources.requests))
    if spec.overhead:
        over = amounts(spec.overhead)
        add(total, {k: v for k, v in over.items() if k in total} if limits else over)
    return total


def add(total: Amounts, more: Amounts, sign: int = 1) -> None:
    """Add (or with sign -1 remove) amounts in place."""
    for name, value in more.items():
        total[name] = total.get(name, 0) + sign * value


def _raise(total: Amounts, floor: Amounts) -> None:
    for name, value in floor.items():
        if value > total.get(name, 0):
            total[name] = value
