"""The resize subresource of pods: fields that an update through it drops, and fields that it must not change."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, pod, problems, strategy_of, update_problems

SMALL = {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "2Gi"}}
OTHER = {"requests": {"cpu": "1"}}


def whole(resources: Object | None = None, **more: Any) -> Object:
    return created(pod(**({"resources": resources} if resources else {}), containers=[container()], **more))


def init(**more: Any) -> Object:
    return container(name="i", image="a:1", resources=SMALL, **more)


def test_everything_but_resources_and_policies_is_dropped() -> None:
    old = created(pod(containers=[container(resources=SMALL)], initContainers=[init()], resources=SMALL))
    new = copy.deepcopy(old)
    larger = {"requests": {"cpu": "1500m", "memory": "1Gi"}, "limits": {"cpu": "3", "memory": "2Gi"}}
    new["spec"] |= {"hostname": "other", "resources": larger}
    new["spec"]["containers"][0] |= {"image": "other:1", "resources": larger}
    new["spec"]["initContainers"][0]["command"] = ["x"]
    new["status"] = {"phase": "Failed"}
    assert update_problems(old, new, "resize") == []
    strategy_of(old).prepare_subresource("resize", new, old)
    wanted = copy.deepcopy(old)
    wanted["spec"]["resources"] = wanted["spec"]["containers"][0]["resources"] = larger
    assert new == wanted


def test_containers_are_neither_added_nor_renamed_and_policies_stay() -> None:
    old = created(pod(containers=[container(resources=SMALL)]))
    more = created(pod(containers=[container(resources=SMALL), container(name="d")]))
    assert update_problems(old, more, "resize") == [
        "spec.containers: Forbidden: containers may not be added or removed on resize"
    ]
    with_init = created(pod(containers=[container(resources=SMALL)], initContainers=[init()]))
    assert update_problems(old, with_init, "resize") == [
        "spec.initContainers: Forbidden: initContainers may not be added or removed on resize"
    ]
    renamed = created(pod(containers=[container(name="d", resources=SMALL)]))
    assert update_problems(old, renamed, "resize") == [
        "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
    ]
    policy = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    restarted = created(pod(containers=[container(resources=SMALL, resizePolicy=policy)]))
    assert update_problems(old, restarted, "resize") == ["spec: Forbidden: only cpu and memory resources are mutable"]


def test_the_resources_of_the_pod_as_a_whole_change_and_may_be_added() -> None:
    old = whole(SMALL)
    assert (
        update_problems(old, whole({"requests": {"cpu": "2", "memory": "1Gi"}, "limits": SMALL["limits"]}), "resize")
        == []
    )
    burstable = created(pod(containers=[container(resources=OTHER)]))
    added = created(pod(containers=[container(resources=OTHER)], resources=SMALL))
    assert update_problems(burstable, added, "resize") == []


@pytest.mark.parametrize(
    ("new", "messages"),
    [
        (None, ["spec.resources: Forbidden: pod-level resources cannot be removed"]),
        (
            {"limits": {"cpu": "2"}, "requests": {"cpu": "1", "memory": "1Gi"}},
            ["spec.resources.limits: Forbidden: pod-level resource limits cannot be removed"],
        ),
        (
            {**SMALL, "limits": {**SMALL["limits"], "hugepages-2Mi": "4Mi"}},
            ["spec: Forbidden: only cpu and memory resources are mutable at pod-level"],
        ),
    ],
)
def test_what_a_pod_has_as_a_whole_is_not_removed(new: Object | None, messages: list[str]) -> None:
    found = update_problems(whole(SMALL), whole(new), "resize")
    assert [message for message in found if "QOS Class" not in message] == messages


def test_init_containers_are_resized_unless_that_restarts_them() -> None:
    def stored(resources: Object, **more: Any) -> Object:
        each = container(name="i", resources=resources, **more)
        return created(pod(containers=[container(resources=OTHER)], initContainers=[each]))

    larger = {**SMALL, "requests": {"cpu": "2", "memory": "1Gi"}}
    assert update_problems(stored(SMALL), stored(larger), "resize") == []
    restart = {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}
    assert update_problems(stored(SMALL, **restart), stored(larger, **restart), "resize") == [
        "spec.initContainers[0]: Forbidden: non-sidecar init containers with a resize policy of RestartContainer cannot be "
        "resized"
    ]


def test_pods_of_nodes_without_resizes_and_with_claims_of_node_resources_are_not_resized() -> None:
    old = created(pod(containers=[container(resources=SMALL)]))
    old["status"]["containerStatuses"] = [{"name": "c", "state": {"running": {}}}]
    new = copy.deepcopy(old)
    assert update_problems(old, new, "resize") == ["spec: Forbidden: Pod running on node without support for resize"]
    old["status"] = {"nodeAllocatableResourceClaimStatuses": [{"resourceClaimName": "r"}]}
    assert update_problems(old, new, "resize") == [
        "spec: Forbidden: pods with node allocatable resource claims cannot be resized"
    ]


def test_an_init_container_may_not_ask_to_be_restarted_unless_it_was_stored_so() -> None:
    restart = [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]
    given = pod(initContainers=[init(resizePolicy=restart)])
    message = (
        'spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to '
        "'RestartContainer' for non-sidecar initContainers"
    )
    assert problems(given) == [message]
    assert problems(pod(initContainers=[init(resizePolicy=restart, restartPolicy="Always")])) == []
    assert update_problems(created(given), created(given)) == []
