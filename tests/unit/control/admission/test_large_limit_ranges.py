"""LimitRanges with many resources for pods with many containers: a namespace's users choose both numbers."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.admission.limit_ranger import MOST_PROBLEMS, LimitRanger
from control.interfaces.admission import Attributes
from control.registry.storing import LARGEST_OBJECT
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.lookup import Objects, attributes
from tests.support.step_lines import longest_step

NAMES = {f"example.com/r{i}": "1" for i in range(5000)}


def ranger(*ranges: Object) -> LimitRanger:
    named = [
        {"metadata": {"name": f"r{i}", "namespace": "shop"}, "spec": {"limits": [each]}}
        for i, each in enumerate(ranges)
    ]
    return LimitRanger(Objects(*(("limitranges", each) for each in named)))


def pod(containers: int) -> Attributes:
    obj: dict[str, Any] = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"containers": [{"name": f"c{i}"} for i in range(containers)]},
    }
    return attributes("pods", obj=obj)


def defaults_of(request: Attributes) -> int:
    assert request.obj is not None
    containers = [each.get("resources", {}) for each in request.obj["spec"]["containers"]]
    return sum(len(each.get(kind, ())) for each in containers for kind in ("requests", "limits"))


def test_defaults_are_refused_once_the_pod_is_larger_than_may_be_stored() -> None:
    request = pod(100)
    with pytest.raises(StatusError) as caught:
        asyncio.run(ranger({"type": "Container", "max": NAMES}).admit(request))
    assert (caught.value.code, caught.value.message) == (500, "etcdserver: request is too large")
    assert 0 < defaults_of(request) * len(min(NAMES)) <= LARGEST_OBJECT


def test_all_limit_ranges_of_a_namespace_share_the_room() -> None:
    parts = [{"type": "Container", "max": {f"{part}.{name}": "1" for name in NAMES}} for part in range(12)]
    request = pod(1)
    with pytest.raises(StatusError):
        asyncio.run(ranger(*parts).admit(request))
    asyncio.run(ranger(*parts[:3]).admit(pod(1)))


@pytest.mark.parametrize("kind", ["Container", "Pod"])
def test_an_error_has_a_limit_of_problems(kind: str) -> None:
    with pytest.raises(StatusError) as caught:
        asyncio.run(ranger({"type": kind, "maxLimitRequestRatio": NAMES}).validate(pod(20)))
    assert caught.value.message.count("no request is specified") == MOST_PROBLEMS


@pytest.mark.parametrize("bound", ["max", "min", "maxLimitRequestRatio"])
async def test_a_step_compares_the_resources_of_few_containers(bound: str) -> None:
    def named(request: Attributes) -> Attributes:
        assert request.obj is not None
        for container in request.obj["spec"]["containers"]:
            container["resources"] = {"requests": NAMES, "limits": NAMES}
        return request

    plugin = ranger({"type": "Container", bound: NAMES})
    for work in (plugin.admit, plugin.validate):
        assert await longest_step(work(named(pod(20)))) < 8 * len(NAMES)
