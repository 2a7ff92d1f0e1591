"""Effective resource requests and limits of a pod.

Requests of containers are added; init containers run one after another, so only the largest counts, together with the
sidecars started before it; overhead is added, and pod-level resources replace the sum. Upstream: component-helpers/resource.
"""

from __future__ import annotations

from kube import quantity
from kube.api import core_v1
from kube.bounded_cache import bounded_cache

Amounts = dict[str, int]
"""Resource name to amount: millicores for cpu, whole units (bytes, pieces) for the rest."""


@bounded_cache(8192)
def amount(name: str, value: str | int | float) -> int:
    """Return one quantity in the unit of its resource."""
    return quantity.milli(value) if name == "cpu" else quantity.value(value)


def amounts(resources: dict[str, str | int | float]) -> Amounts:
    return {name: amount(name, value) for name, value in resources.items()}


def pod_requests(pod: core_v1.Pod, defaults: Amounts | None = None) -> Amounts:
    """Return the pod's requests.

    With `defaults` (for scoring) they contain only those resources, with the defaults for containers without a request.
    During a resize they are the maximum of requested, allocated and actual resources; the requested ones do not count if the
    resize is infeasible on the node (upstream: PodRequests with UseStatusResources).
    """
    return _total(pod, defaults or {}, limits=False)


def allocated_resources(pod: core_v1.Pod) -> dict[str, tuple[object, object]]:
    """Return the allocated and actual resources of a pod's containers, by name; empty until the node has reported them.

    Those of a pod that has resources as a whole are under "".
    """
    status = pod.status
    statuses = [*status.container_statuses, *status.init_container_statuses]
    found: dict[str, tuple[object, object]] = {
        s.name: (s.allocated_resources, s.resources) for s in statuses if s.resources is not None
    }
    if pod.spec.resources is not None and status.resources is not None:
        found[""] = status.allocated_resources, status.resources
    return found


def is_infeasible(pod: core_v1.Pod) -> bool:
    """True if a pod requests a resize that its node can never give it."""
    return any(c.type == "PodResizePending" and c.reason == "Infeasible" for c in pod.status.conditions)


def pod_limits(pod: core_v1.Pod) -> Amounts:
    """Return the pod's limits."""
    return _total(pod, {}, limits=True)


def _named(resources: dict[str, str | int | float], defaults: Amounts) -> Amounts:
    """Return amounts; with defaults only those of their resources, so that the others cost nothing."""
    if defaults:
        return {name: amount(name, resources[name]) for name in defaults if name in resources}
    return amounts(resources)


def _of(container: core_v1.Container, defaults: Amounts, *, limits: bool) -> Amounts:
    resources = container.resources
    if resources is None:
        return defaults
    given = resources.limits if limits else resources.requests
    if defaults:
        return {name: amount(name, given[name]) if name in given else usual for name, usual in defaults.items()}
    return amounts(given)


def _resized(pod: core_v1.Pod, defaults: Amounts) -> dict[str, Amounts]:
    """Return the requests of the containers whose resources the node has reported."""
    found: dict[str, Amounts] = {}
    containers = {} if is_infeasible(pod) else {c.name: c for c in [*pod.spec.containers, *pod.spec.init_containers]}
    for status in [*pod.status.container_statuses, *pod.status.init_container_statuses]:
        if status.resources is None:
            continue
        most = _named(status.resources.requests, defaults)
        _raise(most, _named(status.allocated_resources, defaults))
        container = containers.get(status.name)
        if container is not None and container.resources is not None:
            _raise(most, _named(container.resources.requests, defaults))
        found[status.name] = {name: most.get(name, usual) for name, usual in defaults.items()} if defaults else most
    return found


def _of_pod(pod: core_v1.Pod, defaults: Amounts) -> Amounts:
    """Return the requests of the pod as a whole: during a resize the maximum of requested, allocated and actual ones."""
    assert pod.spec.resources is not None
    wished = _named(pod.spec.resources.requests, defaults)
    if pod.status.resources is None:
        return wished
    most = _named(pod.status.resources.requests, defaults)
    _raise(most, _named(pod.status.allocated_resources, defaults))
    if not is_infeasible(pod):
        _raise(most, wished)
    return {name: most.get(name, 0) for name in wished}


def _total(pod: core_v1.Pod, defaults: Amounts, *, limits: bool) -> Amounts:
    spec = pod.spec
    total: Amounts = {}
    reported = _resized(pod, defaults) if not limits and pod.status.container_statuses else {}
    for container in spec.containers:
        add(total, reported.get(container.name) or _of(container, defaults, limits=limits))
    if spec.init_containers:
        sidecars: Amounts = {}
        peak: Amounts = {}
        for container in spec.init_containers:
            own = reported.get(container.name) or _of(container, defaults, limits=limits)
            if container.restart_policy == "Always":
                add(total, own)
                add(sidecars, own)
            else:
                # Of what it does not name itself the sidecars have no more now than in the end, which is in the total.
                _raise(peak, {k: value + sidecars.get(k, 0) for k, value in own.items()})
        _raise(total, peak)
    if spec.resources is not None:
        total.update(amounts(spec.resources.limits) if limits else _of_pod(pod, defaults))
    if spec.overhead:
        over = _named(spec.overhead, defaults)
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
