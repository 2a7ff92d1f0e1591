"""Conversion of a stored autoscaler to autoscaling/v1 and back without loss."""

import json

from control.registry.autoscaling.conversion import BEHAVIOR, CURRENT, METRICS, to_v1, to_v2

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
