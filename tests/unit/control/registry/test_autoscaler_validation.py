from __future__ import annotations

from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import created, problems, update_problems

M, T = "spec.metrics[0]", "spec.metrics[0].{}.target"
SHARE = {"type": "Utilization", "averageUtilization": 50}
WORKLOAD = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}


def autoscaler(*metrics: Object, **spec: Any) -> Object:
    base: Object = {"scaleTargetRef": WORKLOAD, "maxReplicas": 3, **({"metrics": list(metrics)} if metrics else {})}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {**base, **spec},
    }


def metric(kind: str, **source: Any) -> Object:
    return {"type": kind, kind[0].lower() + kind[1:]: source}


def resource(**target: Any) -> Object:
    return metric("Resource", name="cpu", target={"type": "Utilization", **target})


def behavior(**rules: Any) -> Object:
    policies = [{"type": "Pods", "value": 1, "periodSeconds": 60}]
    return autoscaler(behavior={"scaleUp": {"policies": policies, **rules}})


def policy(**parts: Any) -> Object:
    return behavior(policies=[{"type": "Pods", "value": 1, "periodSeconds": 60, **parts}])


UP = "spec.behavior.scaleUp"
REFUSED = [
    (autoscaler(minReplicas=0), "spec.minReplicas: Invalid value: 0: must be greater than or equal to 1"),
    (autoscaler(maxReplicas=0), "spec.maxReplicas: Invalid value: 0: must be greater than 0"),
    (
        autoscaler(minReplicas=5),
        "spec.maxReplicas: Invalid value: 3: must be greater than or equal to `minReplicas`",
    ),
    (autoscaler(scaleTargetRef={"kind": "Deployment"}), "spec.scaleTargetRef.name: Required value"),
    (
        autoscaler(scaleTargetRef={"kind": "..", "name": "a/b"}),
        "spec.scaleTargetRef.name: Invalid value: \"a/b\": may not contain '/'",
    ),
    (autoscaler(*[resource(**SHARE)] * 129), "spec.metrics: Too many: 129: must have at most 128 items"),
    (
        behavior(policies=[{"type": "Pods", "value": 1, "periodSeconds": 60}] * 129),
        f"{UP}.policies: Too many: 129: must have at most 128 items",
    ),
    (autoscaler({}), f"{M}.type: Required value: must specify a metric source type"),
    (
        autoscaler({"type": "Odd"}),
        f'{M}.type: Unsupported value: "Odd": supported values: "ContainerResource", "External", "Object", "Pods", '
        '"Resource"',
    ),
    (
        autoscaler({"type": "Pods"}),
        f"{M}.pods: Required value: must populate information for the given metric source",
    ),
    (
        autoscaler({**resource(averageUtilization=50), "pods": {}}),
        f"{M}.pods: Forbidden: must populate the given metric source only",
    ),
    (
        autoscaler(metric("Resource", target=SHARE)),
        f"{M}.resource.name: Required value: must specify a resource name",
    ),
    (
        autoscaler(resource()),
        f"{T.format('resource')}.averageUtilization: Required value: must set either a target raw value or a target "
        "utilization",
    ),
    (
        autoscaler(resource(averageUtilization=5, averageValue="1")),
        f"{T.format('resource')}.averageValue: Forbidden: may not set both a target raw value and a target utilization",
    ),
    (
        autoscaler(resource(averageUtilization=0)),
        f"{T.format('resource')}.averageUtilization: Invalid value: 0: must be greater than 0",
    ),
    (
        autoscaler(metric("Resource", name="cpu", target={"averageValue": "1"})),
        f"{T.format('resource')}.type: Required value: must specify a metric target type",
    ),
    (
        autoscaler(metric("ContainerResource", name="cpu", target=SHARE)),
        f"{M}.containerResource.container: Required value: must specify a container",
    ),
    (
        autoscaler(metric("Pods", metric={"name": "x"}, target={"type": "AverageValue"})),
        f"{T.format('pods')}.averageValue: Required value: must specify a positive target averageValue",
    ),
    (
        autoscaler(metric("Pods", metric={}, target={"type": "AverageValue", "averageValue": "-1"})),
        f"{M}.pods.metric.name: Required value: must specify a metric name",
    ),
    (
        autoscaler(metric("Pods", metric={"name": "x"}, target={"type": "AverageValue", "averageValue": "-1"})),
        f'{T.format("pods")}.averageValue: Invalid value: "-1": must be positive',
    ),
    (
        autoscaler(metric("Object", metric={"name": "x"}, describedObject={}, target={"type": "Value"})),
        f"{M}.object.describedObject.kind: Required value",
    ),
    (
        autoscaler(metric("External", metric={"name": "x"}, target={"type": "Value", "value": 1, "averageValue": 1})),
        f"{T.format('external')}.value: Forbidden: may not set both a target value for metric and a per-pod target",
    ),
    (
        behavior(stabilizationWindowSeconds=4000),
        f"{UP}.stabilizationWindowSeconds: Invalid value: 4000: must be less than or equal to 3600",
    ),
    (
        behavior(selectPolicy="Odd"),
        f'{UP}.selectPolicy: Unsupported value: "Odd": supported values: "Disabled", "Max", "Min"',
    ),
    (behavior(policies=[]), f"{UP}.policies: Required value: must specify at least one Policy"),
    (policy(value=0), f"{UP}.policies[0].value: Invalid value: 0: must be greater than zero"),
    (
        policy(periodSeconds=1801),
        f"{UP}.policies[0].periodSeconds: Invalid value: 1801: must be less than or equal to 1800",
    ),
    (policy(type="Odd"), f'{UP}.policies[0].type: Unsupported value: "Odd": supported values: "Percent", "Pods"'),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:80] for _, m in REFUSED])
def test_a_bad_autoscaler_is_refused_in_upstreams_words(obj: Object, message: str) -> None:
    assert message in problems(obj)


def test_good_metrics_of_every_type_are_accepted() -> None:
    value = {"type": "Value", "value": "10"}
    found = autoscaler(
        resource(averageUtilization=80),
        metric("ContainerResource", name="memory", container="app", target=SHARE),
        metric("Pods", metric={"name": "hits"}, target={"type": "AverageValue", "averageValue": "10"}),
        metric("Object", metric={"name": "hits"}, describedObject={"kind": "Ingress", "name": "i"}, target=value),
        metric("External", metric={"name": "queue"}, target=value),
    )
    assert problems(found) == []


def test_an_autoscaler_that_was_at_nought_may_stay_there_where_something_outside_wakes_it() -> None:
    outside = metric("External", metric={"name": "queue"}, target={"type": "Value", "value": "10"})
    old = created(autoscaler(outside))
    old["spec"]["minReplicas"] = 0
    assert update_problems(old, old) == []
    old["spec"]["metrics"] = [resource(averageUtilization=80)]
    assert update_problems(old, old) == [
        "spec.metrics: Forbidden: must specify at least one Object or External metric to support scaling to zero replicas"
    ]
