from __future__ import annotations

import asyncio
from typing import Any

import pytest

from control.admission.default_toleration_seconds import DefaultTolerationSeconds
from control.admission.limit_ranger import LimitRanger
from control.admission.namespace_lifecycle import NamespaceLifecycle
from control.admission.priority import Priority
from control.admission.runtime_class import RuntimeClass
from control.admission.taint_nodes import TaintNodesByCondition
from control.interfaces.admission import Attributes, Plugin
from kube.errors import StatusError
from kube.json_object import Object
from tests.support.lookup import Objects, attributes


def pod(*containers: Object, namespace: str = "shop", **spec: Any) -> Object:
    found = list(containers) or [{"name": "c"}]
    return {"metadata": {"name": "web", "namespace": namespace}, "spec": {"containers": found, **spec}}


def admit(plugin: Plugin, request: Attributes) -> Attributes:
    """Take a request through one plugin, as the chain does."""

    async def both() -> None:
        if plugin.handles(request):
            await plugin.admit(request)
            await plugin.validate(request)

    asyncio.run(both())
    return request


def refused(plugin: Plugin, request: Attributes, code: int = 403) -> str:
    with pytest.raises(StatusError) as caught:
        admit(plugin, request)
    assert caught.value.code == code
    return caught.value.message


# -- NamespaceLifecycle -----------------------------------------------------------------------------------------------
def namespaces() -> Objects:
    going = {"metadata": {"name": "going"}, "status": {"phase": "Terminating"}}
    return Objects(("namespaces", {"metadata": {"name": "shop"}}), ("namespaces", going))


def test_nothing_is_created_in_a_namespace_that_is_not_there() -> None:
    plugin = NamespaceLifecycle(namespaces())
    admit(plugin, attributes("pods", obj=pod()))
    assert refused(plugin, attributes("pods", obj=pod(namespace="gone")), 404) == 'namespaces "gone" not found'


def test_nothing_is_created_in_a_namespace_that_goes_away_but_things_still_change_there() -> None:
    plugin = NamespaceLifecycle(namespaces())
    with pytest.raises(StatusError) as caught:
        admit(plugin, attributes("pods", obj=pod(namespace="going")))
    assert caught.value.message == (
        'pods "web" is forbidden: unable to create new content in namespace going because it is being terminated'
    )
    assert caught.value.details["causes"][0]["reason"] == "NamespaceTerminating"
    admit(plugin, attributes("pods", "UPDATE", pod(namespace="going"), pod(namespace="going")))
    admit(plugin, attributes("pods", "DELETE", None, pod(namespace="going")))


def test_a_namespace_made_a_moment_ago_is_found_in_the_store() -> None:
    objects = namespaces()
    objects.put("namespaces", {"metadata": {"name": "new"}}, cached=False)
    admit(NamespaceLifecycle(objects), attributes("pods", obj=pod(namespace="new")))


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_systems_namespaces_stay(name: str) -> None:
    plugin = NamespaceLifecycle(namespaces())
    message = refused(plugin, attributes("namespaces", "DELETE", name=name))
    assert message == f'namespaces "{name}" is forbidden: this namespace may not be deleted'
    admit(plugin, attributes("namespaces", "DELETE", name="shop"))


# -- DefaultTolerationSeconds, TaintNodesByCondition ------------------------------------------------------------------
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


@pytest.mark.parametrize(
    "present, added",
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoExecute"}], [UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists"}], [UNREACHABLE]),
        ([{"key": NOT_READY, "operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
        ([{"operator": "Exists"}], []),
    ],
)
def test_pods_wait_five_minutes_on_a_lost_node(present: list[Object], added: list[str]) -> None:
    made = pod(tolerations=present)
    admit(DefaultTolerationSeconds(), attributes("pods", obj=made))
    more = made["spec"]["tolerations"][len(present) :]
    assert [t["key"] for t in more] == added
    assert all(t["tolerationSeconds"] == 300 and t["effect"] == "NoExecute" for t in more)


def test_new_nodes_take_no_pods_until_they_are_seen_ready() -> None:
    node: Object = {"metadata": {"name": "n1"}, "spec": {}}
    admit(TaintNodesByCondition(), attributes("nodes", obj=node))
    admit(TaintNodesByCondition(), attributes("nodes", obj=node))
    assert node["spec"]["taints"] == [{"key": NOT_READY, "effect": "NoSchedule"}]


# -- Priority ---------------------------------------------------------------------------------------------------------
CLASSES = "priorityclasses.scheduling.k8s.io"


def classes(*names: tuple[str, int, bool]) -> Objects:
    return Objects(
        *((CLASSES, {"metadata": {"name": n}, "value": v, "globalDefault": d}) for n, v, d in names),
    )


def test_a_class_becomes_its_number() -> None:
    objects = classes(("high", 1000, False))
    objects.put(CLASSES, {"metadata": {"name": "meek"}, "value": 5, "preemptionPolicy": "Never"})
    made = pod(priorityClassName="high")
    admit(Priority(objects), attributes("pods", obj=made))
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (1000, "PreemptLowerPriority")
    meek = pod(priorityClassName="meek")
    admit(Priority(objects), attributes("pods", obj=meek))
    assert (meek["spec"]["priority"], meek["spec"]["preemptionPolicy"]) == (5, "Never")


def test_without_a_class_the_default_one_or_zero_counts() -> None:
    made = pod()
    admit(Priority(classes()), attributes("pods", obj=made))
    assert made["spec"]["priority"] == 0 and "priorityClassName" not in made["spec"]
    made = pod()
    admit(Priority(classes(("b", 20, True), ("a", 10, True))), attributes("pods", obj=made))
    assert (made["spec"]["priority"], made["spec"]["priorityClassName"]) == (10, "a")


def test_the_system_classes_are_there_before_their_objects() -> None:
    made = pod(priorityClassName="system-node-critical")
    admit(Priority(classes()), attributes("pods", obj=made))
    assert made["spec"]["priority"] == 2_000_001_000


def test_unknown_classes_and_numbers_of_ones_own_are_refused() -> None:
    plugin = Priority(classes(("high", 1000, False)))
    message = refused(plugin, attributes("pods", obj=pod(priorityClassName="gone")))
    assert message == 'pods "web" is forbidden: no PriorityClass with name gone was found'
    message = refused(plugin, attributes("pods", obj=pod(priorityClassName="high", priority=7)))
    assert "the integer value of priority (7) must not be provided in pod spec" in message
    admit(plugin, attributes("pods", obj=pod(priorityClassName="high", priority=1000)))


def test_there_is_one_default_class() -> None:
    plugin = Priority(classes(("first", 10, True)))
    second = {"metadata": {"name": "second"}, "value": 5, "globalDefault": True}
    message = refused(plugin, attributes(CLASSES, obj=second))
    assert message.endswith("PriorityClass first is already marked as default. Only one default can exist")
    first = {"metadata": {"name": "first"}, "value": 10, "globalDefault": True}
    admit(plugin, attributes(CLASSES, "UPDATE", first, first))


# -- LimitRanger ------------------------------------------------------------------------------------------------------
def limits(*items: Object) -> LimitRanger:
    return LimitRanger(
        Objects(("limitranges", {"metadata": {"name": "l", "namespace": "shop"}, "spec": {"limits": list(items)}}))
    )


def container(name: str = "c", requests: Object | None = None, limits: Object | None = None) -> Object:
    resources = {k: v for k, v in (("requests", requests), ("limits", limits)) if v}
    return {"name": name, "resources": resources} if resources else {"name": name}


def test_containers_without_resources_get_the_defaults_and_an_annotation() -> None:
    plugin = limits(
        {"type": "Container", "default": {"cpu": "500m", "memory": "1Gi"}, "defaultRequest": {"cpu": "100m"}}
    )
    made = pod(container("a"), container("b", {"cpu": "1"}, {"cpu": "2"}))
    admit(plugin, attributes("pods", obj=made))
    first, second = (c["resources"] for c in made["spec"]["containers"])
    assert first == {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
    assert second == {"requests": {"cpu": "1", "memory": "1Gi"}, "limits": {"cpu": "2", "memory": "1Gi"}}
    assert made["metadata"]["annotations"]["kubernetes.io/limit-ranger"] == (
        "LimitRanger plugin set: cpu, memory request for container a; cpu, memory limit for container a; "
        "memory request for container b; memory limit for container b"
    )


@pytest.mark.parametrize(
    "item, containers, why",
    [
        (
            {"type": "Container", "min": {"cpu": "100m"}},
            [container(requests={"cpu": "50m"})],
            "minimum cpu usage per Container is 100m, but request is 50m",
        ),
        (
            {"type": "Container", "max": {"cpu": "1"}},
            [container(requests={"cpu": "1"}, limits={"cpu": "1500m"})],
            "maximum cpu usage per Container is 1, but limit is 1500m",
        ),
        (
            {"type": "Container", "min": {"cpu": "1", "memory": "1Gi"}},
            [container(requests={"cpu": "500m", "memory": "512Mi"})],
            "[minimum cpu usage per Container is 1, but request is 500m, "
            "minimum memory usage per Container is 1Gi, but request is 512Mi]",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            [container(requests={"cpu": "1"}, limits={"cpu": "3"})],
            "cpu max limit to request ratio per Container is 2, but provided ratio is 3.000000",
        ),
        (
            {"type": "Container", "maxLimitRequestRatio": {"cpu": "2"}},
            [container(requests={"cpu": "1"})],
            "cpu max limit to request ratio per Container is 2, but no limit is specified or limit is 0",
        ),
        (
            {"type": "Pod", "max": {"cpu": "2"}},
            [container("a", limits={"cpu": "1500m"}), container("b", limits={"cpu": "1"})],
            "maximum cpu usage per Pod is 2, but limit is 2500m",
        ),
        (
            {"type": "Pod", "min": {"memory": "1Gi"}},
            [container()],
            "minimum memory usage per Pod is 1Gi.  No request is specified",
        ),
    ],
)
def test_what_is_out_of_bounds_is_refused_in_upstreams_words(item: Object, containers: list[Object], why: str) -> None:
    assert refused(limits(item), attributes("pods", obj=pod(*containers))) == f'pods "web" is forbidden: {why}'


def test_init_containers_count_for_a_pod_at_their_highest() -> None:
    plugin = limits({"type": "Pod", "max": {"cpu": "2"}})
    admit(
        plugin,
        attributes(
            "pods", obj=pod(container(limits={"cpu": "1"}), initContainers=[container("i", limits={"cpu": "2"})])
        ),
    )
    message = refused(
        plugin,
        attributes(
            "pods", obj=pod(container(limits={"cpu": "1"}), initContainers=[container("i", limits={"cpu": "3"})])
        ),
    )
    assert message.endswith("but limit is 3")


def test_claims_are_bounded_by_their_request() -> None:
    plugin = limits({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})
    claim = {
        "metadata": {"name": "data", "namespace": "shop"},
        "spec": {"resources": {"requests": {"storage": "2Gi"}}},
    }
    message = refused(plugin, attributes("persistentvolumeclaims", obj=claim))
    assert message.endswith("maximum storage usage per PersistentVolumeClaim is 1Gi, but request is 2Gi")


def test_a_resized_pod_is_held_against_the_limits_too() -> None:
    plugin = limits({"type": "Container", "max": {"cpu": "1"}})
    old, new = pod(container(limits={"cpu": "1"})), pod(container(limits={"cpu": "2"}))
    message = refused(plugin, attributes("pods", "UPDATE", new, old, subresource="resize"))
    assert message.endswith("maximum cpu usage per Container is 1, but limit is 2")
    assert not plugin.handles(attributes("pods", "UPDATE", new, old))


# -- RuntimeClass -----------------------------------------------------------------------------------------------------
def test_a_runtime_class_brings_overhead_and_a_place() -> None:
    runtime_class = {
        "metadata": {"name": "kata"},
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
    }
    plugin = RuntimeClass(Objects(("runtimeclasses.node.k8s.io", runtime_class)))
    made = pod(runtimeClassName="kata")
    admit(plugin, attributes("pods", obj=made))
    assert made["spec"]["overhead"] == {"cpu": "250m"} and made["spec"]["nodeSelector"] == {"kata": "yes"}
    assert made["spec"]["tolerations"] == [{"key": "kata", "operator": "Exists"}]
    message = refused(plugin, attributes("pods", obj=pod(runtimeClassName="gone")))
    assert message.endswith('pod rejected: RuntimeClass "gone" not found')
    assert "doesn't match" in refused(
        plugin, attributes("pods", obj=pod(runtimeClassName="kata", overhead={"cpu": "1"}))
    )
    wide = pod(runtimeClassName="kata", tolerations=[{"operator": "Exists"}])
    admit(plugin, attributes("pods", obj=wide))
    assert wide["spec"]["tolerations"] == [{"operator": "Exists"}]


def test_an_overhead_without_one_of_the_runtime_class_is_rejected_after_validation() -> None:
    plugin = RuntimeClass(
        Objects(
            ("runtimeclasses.node.k8s.io", {"metadata": {"name": "runc"}}),
            ("runtimeclasses.node.k8s.io", {"metadata": {"name": "kata"}, "overhead": {"podFixed": {"cpu": "250m"}}}),
        )
    )
    for spec in ({}, {"runtimeClassName": "runc"}):
        given = attributes("pods", obj=pod(**spec, overhead={"cpu": "1"}))
        asyncio.run(plugin.admit(given))
        message = refused(plugin, given)
        assert message.endswith("pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead")
    removed = attributes("pods", obj=pod(runtimeClassName="kata"))
    with pytest.raises(StatusError, match="doesn't match"):
        asyncio.run(plugin.validate(removed))
