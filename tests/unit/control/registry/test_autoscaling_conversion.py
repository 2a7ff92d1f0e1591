"""Conversion of a stored autoscaler to autoscaling/v1 and back without loss."""

import json
from typing import Any

import pytest

from control.registry.autoscaling.conversion import BEHAVIOR, CONDITIONS, CURRENT, METRICS, to_v1, to_v2
from kube.errors import StatusError
from kube.nesting import DEEPEST
from kube.value_count import MOST_VALUES

CPU = {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 70}}}
QUEUE = {"name": "queue", "selector": {"matchLabels": {"q": "a"}}}
OTHERS = [
    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
    {
        "type": "ContainerResource",
        "containerResource": {
            "name": "cpu",
            "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 30},
        },
    },
    {"type": "Pods", "pods": {"metric": {"name": "hits"}, "target": {"type": "AverageValue", "averageValue": "5"}}},
    {
        "type": "Object",
        "object": {
            "describedObject": {"kind": "Ingress", "name": "i"},
            "metric": {"name": "rate"},
            "target": {"type": "Value", "value": "10"},
        },
    },
    {"type": "External", "external": {"metric": QUEUE, "target": {"type": "AverageValue", "averageValue": "3"}}},
]
BEHAVING = {"scaleUp": {"policies": [{"type": "Pods", "value": 4, "periodSeconds": 15}], "selectPolicy": "Max"}}
STORED = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "annotations": {"mine": "kept"}},
    "spec": {"maxReplicas": 3, "metrics": [CPU, *OTHERS], "behavior": BEHAVING},
    "status": {
        "desiredReplicas": 2,
        "currentMetrics": [
            {
                "type": "Resource",
                "resource": {"name": "cpu", "current": {"averageUtilization": 60, "averageValue": "6m"}},
            },
            {"type": "External", "external": {"metric": QUEUE, "current": {"averageValue": "4"}}},
        ],
        "conditions": [{"type": "AbleToScale", "status": "True"}],
    },
}


def test_there_and_back_nothing_is_lost() -> None:
    before = json.dumps(STORED)
    assert to_v2(to_v1(STORED)) == STORED
    assert json.dumps(STORED) == before


def test_v1_has_the_cpu_target_in_its_field_and_the_rest_in_annotations_of_its_own_shapes() -> None:
    shown = to_v1(STORED)
    assert shown["spec"] == {"maxReplicas": 3, "targetCPUUtilizationPercentage": 70}
    assert shown["status"] == {"desiredReplicas": 2, "currentCPUUtilizationPercentage": 60}
    annotations = shown["metadata"]["annotations"]
    assert json.loads(annotations[METRICS])[0] == {
        "type": "Resource",
        "resource": {"name": "memory", "targetAverageValue": "1Gi"},
    }
    external = {"metricName": "queue", "metricSelector": {"matchLabels": {"q": "a"}}, "targetAverageValue": "3"}
    assert json.loads(annotations[METRICS])[-1] == {"type": "External", "external": external}
    resource = {"name": "cpu", "currentAverageUtilization": 60, "currentAverageValue": "6m"}
    assert json.loads(annotations[CURRENT])[0] == {"type": "Resource", "resource": resource}
    policies = [{"Type": "Pods", "Value": 4, "PeriodSeconds": 15}]
    assert json.loads(annotations[BEHAVIOR]) == {"ScaleUp": {"Policies": policies, "SelectPolicy": "Max"}}


def test_annotations_that_cannot_be_read_mean_nothing() -> None:
    written = {"metadata": {"annotations": {METRICS: "[", BEHAVIOR: "3"}}, "spec": {"maxReplicas": 2}}
    assert to_v2(written)["spec"] == {"maxReplicas": 2}


@pytest.mark.parametrize(
    "behavior",
    [
        {"ScaleUp": {"StabilizationWindowSeconds": 1.5}},
        {"ScaleUp": {"StabilizationWindowSeconds": 10**12}},
        {"ScaleUp": {"Policies": [{"Type": "Pods", "Value": True, "PeriodSeconds": 60}]}},
        {"ScaleUp": {"Policies": "none"}},
        {"ScaleUp": {"Tolerance": "wide"}},
        {"ScaleUp": []},
    ],
)
def test_a_behavior_that_does_not_fit_its_type_means_nothing(behavior: dict[str, Any]) -> None:
    written = {"metadata": {"annotations": {BEHAVIOR: json.dumps(behavior)}}, "spec": {"maxReplicas": 2}}
    assert to_v2(written)["spec"] == {"maxReplicas": 2}


@pytest.mark.parametrize(
    "metric",
    [
        {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50.5}},
        {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 10**12}},
        {"type": "Resource", "resource": {"name": 5, "targetAverageUtilization": 50}},
        {"type": "Resource", "resource": "name"},
        {"type": [], "resource": {"name": "memory"}},
        {"type": "Pods", "pods": {"metricName": "m", "selector": "abc", "targetAverageValue": "1"}},
        {"type": "Pods", "pods": {"metricName": "m", "targetAverageValue": "much"}},
        {"type": "Object", "object": {"target": [], "metricName": "m", "targetValue": "1"}},
        "Resource",
    ],
)
def test_metrics_of_which_one_does_not_fit_its_type_mean_nothing(metric: Any) -> None:
    memory = {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50}}
    written = {"metadata": {"annotations": {METRICS: json.dumps([memory, metric])}}, "spec": {"maxReplicas": 2}}
    assert to_v2(written)["spec"] == {"maxReplicas": 2}


def test_measured_values_and_conditions_that_do_not_fit_their_types_mean_nothing() -> None:
    annotations = {CURRENT: json.dumps([{"type": 7}]), CONDITIONS: json.dumps([{"type": 5}])}
    written = {"metadata": {"annotations": annotations}, "spec": {}, "status": {"currentCPUUtilizationPercentage": 60}}
    cpu = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 60}}}
    assert to_v2(written)["status"] == {"currentMetrics": [cpu]}


def test_unknown_fields_of_annotations_are_dropped() -> None:
    memory = {"type": "Resource", "resource": {"name": "memory", "targetAverageUtilization": 50}, "more": {"a": 1}}
    behavior = {"ScaleUp": {"StabilizationWindowSeconds": 5, "More": 1}, "Other": 2}
    annotations = {METRICS: json.dumps([memory]), BEHAVIOR: json.dumps(behavior)}
    spec = to_v2({"metadata": {"annotations": annotations}, "spec": {}})["spec"]
    target = {"type": "Utilization", "averageUtilization": 50}
    assert spec["metrics"] == [{"type": "Resource", "resource": {"name": "memory", "target": target}}]
    assert spec["behavior"] == {"scaleUp": {"stabilizationWindowSeconds": 5}}


@pytest.mark.parametrize("depth", [DEEPEST + 1, 100_000])
def test_annotations_that_nest_too_deep_mean_nothing(depth: int) -> None:
    written = {"metadata": {"annotations": {BEHAVIOR: '{"ScaleUp":' * depth + "1" + "}" * depth}}, "spec": {}}
    assert to_v2(written)["spec"] == {}


def test_annotations_count_with_the_values_of_a_body() -> None:
    text = "[" + ",".join(["{}"] * (MOST_VALUES // 3)) + "]"
    annotations = {METRICS: text, CURRENT: text, CONDITIONS: text}
    with pytest.raises(StatusError) as refused:
        to_v2({"metadata": {"annotations": annotations}, "spec": {}})
    assert refused.value.code == 413


def test_quantities_of_annotations_get_their_canonical_form() -> None:
    metric = {"type": "Pods", "pods": {"metricName": "m", "targetAverageValue": "0.5"}}
    spec = to_v2({"metadata": {"annotations": {METRICS: json.dumps([metric])}}, "spec": {}})["spec"]
    assert spec["metrics"][0]["pods"]["target"] == {"type": "AverageValue", "averageValue": "500m"}
