"""Admission and the scheduler count a pod alike: the most that its containers have at once, by the definition of KEP-753."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from control.admission.pod_resources import pod_totals
from kube import quantity
from kube.api import core_v1
from kube.pod_requests import pod_limits, pod_requests

_NAMES = ("cpu", "memory", "example.org/a", "example.org/b", "example.org/c")
_AMOUNTS = st.dictionaries(st.sampled_from(_NAMES), st.integers(0, 9).map(str), max_size=4)
_RESOURCES = st.fixed_dictionaries({"requests": _AMOUNTS, "limits": _AMOUNTS})
_CONTAINER = st.fixed_dictionaries({"name": st.just("c")}, optional={"resources": _RESOURCES})
_INIT = st.fixed_dictionaries(
    {"name": st.just("i"), "resources": _RESOURCES}, optional={"restartPolicy": st.just("Always")}
)
DEFAULTS = {"cpu": 1500, "memory": 2}


def most(spec: dict[str, Any], kind: str, name: str, unset: int = 0) -> int:
    """Return what the containers have at once of a resource, as the phases of the pod's life go by."""

    def of(container: dict[str, Any]) -> int:
        amount = (container.get("resources") or {}).get(kind, {}).get(name)
        return unset if amount is None else int(amount) * (1000 if name == "cpu" else 1)

    sidecars, found = 0, list[int]()
    for container in spec["initContainers"]:
        found.append(sidecars + of(container))
        if "restartPolicy" in container:
            sidecars += of(container)
    return max([sidecars + sum(map(of, spec["containers"])), *found])


@given(st.lists(_CONTAINER, max_size=3), st.lists(_INIT, max_size=5))
def test_a_pod_counts_for_the_most_that_its_containers_have_at_once(
    containers: list[dict[str, Any]], init: list[dict[str, Any]]
) -> None:
    spec = {"containers": containers, "initContainers": init}
    pod = msgspec.convert({"metadata": {"name": "p"}, "spec": spec}, core_v1.Pod)
    totals = pod_totals(spec)
    scored = pod_requests(pod, DEFAULTS)
    for kind, total, amounts in (("requests", totals[0], pod_requests(pod)), ("limits", totals[1], pod_limits(pod))):
        for name in _NAMES:
            read = quantity.milli if name == "cpu" else quantity.value
            assert amounts.get(name, 0) == read(total.get(name, 0)) == most(spec, kind, name), (kind, name)
    for name, unset in DEFAULTS.items():
        assert scored.get(name, 0) == most(spec, "requests", name, unset)
    assert scored.keys() <= DEFAULTS.keys()
