"""Sizes, selectors and policies of Jobs, and what of a Job may change."""

from __future__ import annotations

from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, problems, strategy_of, update_problems, workload

RULE = "spec.podFailurePolicy.rules[0]"


def job(**spec: Any) -> Object:
    template = {"metadata": {}, "spec": {"restartPolicy": "Never", "containers": [container()]}}
    found = workload("Job", "batch/v1", template=template, **spec)
    if "selector" not in spec:
        del found["spec"]["selector"]
    return found


def failure(**rule: Any) -> Object:
    return job(podFailurePolicy={"rules": [rule]})


def codes(*values: int, operator: str = "In", **more: Any) -> Object:
    return failure(action="FailJob", onExitCodes={"operator": operator, "values": list(values), **more})


def indexed(**spec: Any) -> Object:
    return job(**{"completionMode": "Indexed", "completions": 5, "parallelism": 5, **spec})


def success(*rules: Object, **spec: Any) -> Object:
    return indexed(successPolicy={"rules": list(rules)}, **spec)


REFUSED = [
    (
        job(completionMode="Odd"),
        'spec.completionMode: Unsupported value: "Odd": supported values: "NonIndexed", "Indexed"',
    ),
    (
        job(completionMode="Indexed", parallelism=1),
        "spec.completions: Required value: when completion mode is Indexed",
    ),
    (
        indexed(parallelism=100_001),
        "spec.parallelism: Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
    ),
    (job(maxFailedIndexes=1), "spec.backoffLimitPerIndex: Required value: when maxFailedIndexes is specified"),
    (
        job(backoffLimitPerIndex=1),
        "spec.backoffLimitPerIndex: Invalid value: 1: requires indexed completion mode",
    ),
    (
        indexed(backoffLimitPerIndex=1, maxFailedIndexes=6),
        "spec.maxFailedIndexes: Invalid value: 6: must be less than or equal to completions",
    ),
    (
        indexed(completions=200_000, backoffLimitPerIndex=1),
        "spec.maxFailedIndexes: Required value: must be specified when completions is above 100000",
    ),
    (
        indexed(completions=200_000, parallelism=20_000, backoffLimitPerIndex=1, maxFailedIndexes=1),
        "spec.parallelism: Invalid value: 20000: must be less than or equal to 10000 when completions are above 100000 and "
        "used with backoff limit per index",
    ),
    (
        job(managedBy="nobody"),
        'spec.managedBy: Invalid value: "nobody": must be a domain-prefixed path (such as "acme.io/foo")',
    ),
    (job(managedBy="example.com/" + "x" * 60), "spec.managedBy: Too long: may not be more than 63 bytes"),
    (
        job(podReplacementPolicy="Always"),
        'spec.podReplacementPolicy: Unsupported value: "Always": supported values: "Failed", "TerminatingOrFailed"',
    ),
    (
        job(
            podReplacementPolicy="TerminatingOrFailed",
            podFailurePolicy={"rules": [{"action": "Ignore", "onPodConditions": [{"type": "a"}]}]},
        ),
        'spec.podReplacementPolicy: Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
    ),
    (
        failure(onPodConditions=[{"type": "a"}]),
        f'{RULE}.action: Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
    ),
    (
        failure(action="FailIndex", onPodConditions=[{"type": "a"}]),
        f'{RULE}.action: Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
    ),
    (
        failure(action="Ignore"),
        f"{RULE}: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
    ),
    (
        failure(action="Ignore", onPodConditions=[{"type": "a"}], onExitCodes={"operator": "In", "values": [1]}),
        f"{RULE}: Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
    ),
    (codes(0), f"{RULE}.onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator"),
    (codes(2, 1), f"{RULE}.onExitCodes.values: Invalid value: [2,1]: must be ordered"),
    (codes(1, 1), f"{RULE}.onExitCodes.values[1]: Duplicate value: 1"),
    (codes(), f"{RULE}.onExitCodes.values: Invalid value: []: at least one value is required"),
    (
        codes(*range(1, 257)),
        f"{RULE}.onExitCodes.values: Too many: 256: must have at most 255 items",
    ),
    (
        codes(1, operator="Near"),
        f'{RULE}.onExitCodes.operator: Unsupported value: "Near": supported values: "In", "NotIn"',
    ),
    (
        codes(1, containerName="other"),
        f'{RULE}.onExitCodes.containerName: Invalid value: "other": must be one of the container or initContainer names in '
        "the pod template",
    ),
    (
        failure(action="Ignore", onPodConditions=[{"type": "a", "status": "Perhaps"}]),
        f'{RULE}.onPodConditions[0].status: Unsupported value: "Perhaps": supported values: "False", "True", "Unknown"',
    ),
    (
        job(successPolicy={"rules": [{"succeededCount": 1}]}),
        'spec.successPolicy: Invalid value: {"rules":[{"succeededCount":1}]}: requires indexed completion mode',
    ),
    (
        success(),
        "spec.successPolicy.rules: Required value: at least one rules must be specified when the successPolicy is specified",
    ),
    (
        success({}),
        "spec.successPolicy.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
    ),
    (
        success({"succeededCount": 6}),
        "spec.successPolicy.rules[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of "
        "specified completions)",
    ),
    (
        success({"succeededCount": 4, "succeededIndexes": "0-1,3"}),
        "spec.successPolicy.rules[0].succeededCount: Invalid value: 4: must be less than or equal to 3 (the number of "
        "indexes in the specified succeededIndexes field)",
    ),
    (
        success({"succeededIndexes": "\uff10-3"}),
        'spec.successPolicy.rules[0].succeededIndexes: Invalid value: "\uff10-3": error parsing succeededIndexes: '
        'cannot convert string to integer for index: "\uff10"',
    ),
    (
        success({"succeededIndexes": "9"}),
        'spec.successPolicy.rules[0].succeededIndexes: Invalid value: "9": error parsing succeededIndexes: too large index: '
        '"9"',
    ),
    (
        job(selector={"matchLabels": {"a": "b"}}),
        'spec.template.metadata.labels: Invalid value: {"controller-uid":"u","batch.kubernetes.io/controller-uid":"u",'
        '"job-name":"web","batch.kubernetes.io/job-name":"web"}: `selector` does not match template `labels`',
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[m[:80] for _, m in REFUSED])
def test_a_bad_job_is_refused_in_upstreams_words(obj: Object, message: str) -> None:
    assert message in problems(obj)


def test_good_policies_are_accepted() -> None:
    for obj in (
        codes(1, 5, 137),
        failure(action="Ignore", onPodConditions=[{"type": "DisruptionTarget"}]),
        success({"succeededCount": 2, "succeededIndexes": "0-1,4"}),
        indexed(backoffLimitPerIndex=0, maxFailedIndexes=5),
        job(managedBy="kueue.x-k8s.io/multikueue"),
    ):
        assert problems(obj) == []


def test_an_indexed_job_has_room_for_its_indexes_in_its_pods_names() -> None:
    obj = indexed(completions=1000)
    obj["metadata"]["name"] = "j" * 60
    assert problems(obj) == [
        f'metadata.name: Invalid value: "{"j" * 60}": will not able to create pod with invalid DNS label: {"j" * 60}-999'
    ]


def test_completions_of_an_indexed_job_change_with_its_parallelism() -> None:
    old = created(indexed())
    both, alone = created(indexed(completions=7, parallelism=7)), created(indexed(completions=7))
    assert update_problems(old, both) == []
    assert update_problems(old, alone) == [
        "spec.completions: Invalid value: 7: can only be modified in tandem with spec.parallelism"
    ]
    assert update_problems(created(job(completions=3)), created(job(completions=4))) == [
        "spec.completions: Invalid value: 4: field is immutable"
    ]


def test_a_suspended_job_may_be_moved_and_resized_but_not_otherwise_changed() -> None:
    old, moved = created(job(suspend=True)), created(job(suspend=True))
    pod = moved["spec"]["template"]["spec"]
    pod["nodeSelector"], pod["containers"][0]["resources"] = {"zone": "a"}, {"requests": {"cpu": "1"}}
    assert update_problems(old, moved) == []
    for status in ({"active": 1}, {"startTime": "2026-01-01T00:00:00Z"}):
        (found,) = update_problems({**old, "status": status}, {**moved, "status": status})
        assert found.endswith(": field is immutable")
    seen = {"startTime": "2026-01-01T00:00:00Z", "conditions": [{"type": "Suspended", "status": "True"}]}
    assert update_problems({**old, "status": seen}, {**moved, "status": seen}) == []
    pod["hostNetwork"] = True
    (found,) = update_problems(old, moved)
    assert found.startswith("spec.template.spec: Invalid value: ") and found.endswith(": field is immutable")


def test_a_jobs_status_counts_no_pod_twice() -> None:
    old, new = created(job()), created(job())
    new["status"] = {"active": -1, "uncountedTerminatedPods": {"failed": ["a", "a", ""]}}
    path = "status.uncountedTerminatedPods.failed"
    assert update_problems(old, new, "status") == [
        "status.active: Invalid value: -1: must be greater than or equal to 0",
        f'{path}[1]: Duplicate value: "a"',
        f'{path}[2]: Invalid value: "": must not be empty',
    ]


def test_a_cronjobs_template_has_no_selector_of_its_own() -> None:
    spec = {**job()["spec"], "selector": {"matchLabels": {"a": "b"}}, "manualSelector": True}
    obj = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "c", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "jobTemplate": {"spec": spec}},
    }
    assert problems(obj) == [
        'spec.jobTemplate.spec.selector: Invalid value: {"matchLabels":{"a":"b"}}: `selector` will be auto-generated',
        'spec.jobTemplate.spec.manualSelector: Unsupported value: true: supported values: "nil", "false"',
    ]


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet"])
def test_a_workload_with_a_name_that_no_host_can_have_is_warned_of(kind: str) -> None:
    obj = workload(kind)
    obj["metadata"]["name"] = "a.b"
    assert strategy_of(obj).warnings(created(obj), None) == [
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is "
        "recommended: [must not contain dots]"
    ]


def test_counts_of_a_statefulsets_status_fit_together() -> None:
    old, new = created(workload("StatefulSet")), created(workload("StatefulSet"))
    old["status"]["collisionCount"] = 2
    new["status"] = {"replicas": 1, "readyReplicas": 2, "availableReplicas": 1, "collisionCount": 1}
    assert update_problems(old, new, "status") == [
        "status.readyReplicas: Invalid value: 2: cannot be greater than status.replicas",
        "status.collisionCount: Invalid value: 1: cannot be decremented",
    ]
