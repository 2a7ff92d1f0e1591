from __future__ import annotations

import copy
from typing import Any

import pytest

from control.registry.batch.schedule import schedule_problem
from kube.json_object import Object
from tests.unit.control.registry.strategies import cells, container, created, problems, update_problems, workload


def template(restart: str = "Always", **labels: str) -> Object:
    return {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {"containers": [container()], "restartPolicy": restart},
    }


def test_a_deployment_gets_upstreams_defaults() -> None:
    spec = created(workload("Deployment"))["spec"]
    assert spec["replicas"] == 1
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "25%", "maxSurge": "25%"}}
    assert (spec["revisionHistoryLimit"], spec["progressDeadlineSeconds"]) == (10, 600)
    assert spec["template"]["spec"]["restartPolicy"] == "Always"
    assert "enableServiceLinks" not in spec["template"]["spec"]


def test_daemonsets_statefulsets_and_cronjobs_get_upstreams_defaults() -> None:
    daemon = created(workload("DaemonSet"))["spec"]
    assert daemon["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}}
    stateful = created(workload("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "d"}, "spec": {}}]))["spec"]
    assert stateful["podManagementPolicy"] == "OrderedReady"
    assert stateful["updateStrategy"] == {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}}
    assert stateful["persistentVolumeClaimRetentionPolicy"] == {"whenDeleted": "Retain", "whenScaled": "Retain"}
    assert stateful["volumeClaimTemplates"][0] == {
        "metadata": {"name": "d"},
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "spec": {"volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    }
    job = {"template": template("Never")}
    cron = created(workload("CronJob", "batch/v1", schedule="* * * * *", jobTemplate={"spec": job}))["spec"]
    assert (cron["concurrencyPolicy"], cron["suspend"]) == ("Allow", False)
    assert (cron["successfulJobsHistoryLimit"], cron["failedJobsHistoryLimit"]) == (3, 1)


def job(**spec: Any) -> Object:
    found = workload("Job", "batch/v1", template=template("Never"), **spec)
    del found["spec"]["selector"]
    return found


def test_a_job_chooses_its_pods_by_its_own_uid() -> None:
    spec = created(job())["spec"]
    assert spec["selector"] == {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}}
    assert spec["template"]["metadata"]["labels"] == {
        "app": "web",
        "controller-uid": "u",
        "batch.kubernetes.io/controller-uid": "u",
        "job-name": "web",
        "batch.kubernetes.io/job-name": "web",
    }
    counts = {k: spec[k] for k in ("completions", "parallelism", "backoffLimit", "completionMode", "suspend")}
    assert counts == {
        "completions": 1,
        "parallelism": 1,
        "backoffLimit": 6,
        "completionMode": "NonIndexed",
        "suspend": False,
    }
    assert problems(job()) == []


MISMATCH = 'spec.template.metadata.labels: Invalid value: {"app":"other"}: `selector` does not match template `labels`'
REFUSED = [
    (workload("Deployment", selector=None), "spec.selector: Required value"),
    (
        workload("Deployment", selector={}),
        "spec.selector: Invalid value: {}: empty selector is invalid for deployment",
    ),
    (workload("Deployment", template=template(app="other")), MISMATCH),
    (workload("ReplicaSet", template=template(app="other")), MISMATCH),
    (workload("DaemonSet", template=template(app="other")), MISMATCH),
    (workload("StatefulSet", template=template(app="other")), MISMATCH),
    (workload("Deployment", replicas=-1), "spec.replicas: Invalid value: -1: must be greater than or equal to 0"),
    (
        workload("Deployment", template=template("Never")),
        'spec.template.spec.restartPolicy: Unsupported value: "Never": supported values: "Always"',
    ),
    (
        workload("Deployment", strategy={"type": "Recreate", "rollingUpdate": {}}),
        "spec.strategy.rollingUpdate: Forbidden: may not be specified when strategy `type` is 'Recreate'",
    ),
    (
        workload("Deployment", strategy={"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}),
        "spec.strategy.rollingUpdate.maxUnavailable: Invalid value: 0: may not be 0 when `maxSurge` is 0",
    ),
    (
        workload("Deployment", strategy={"rollingUpdate": {"maxUnavailable": "many"}}),
        'spec.strategy.rollingUpdate.maxUnavailable: Invalid value: "many": a valid percent string must be a numeric string '
        "followed by an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
    ),
    (
        workload("Deployment", strategy={"type": "Fast"}),
        'spec.strategy: Unsupported value: {"Type":"Fast","RollingUpdate":null}: supported values: "Recreate", '
        '"RollingUpdate"',
    ),
    (
        workload("Deployment", progressDeadlineSeconds=5, minReadySeconds=5),
        "spec.progressDeadlineSeconds: Invalid value: 5: must be greater than minReadySeconds",
    ),
    (
        workload("Deployment", selector={"matchExpressions": [{"key": "a", "operator": "Near"}]}),
        'spec.selector.matchExpressions[0].operator: Invalid value: "Near": not a valid selector operator',
    ),
    (
        workload("DaemonSet", updateStrategy={"rollingUpdate": {"maxUnavailable": 0}}),
        "spec.updateStrategy.rollingUpdate.maxUnavailable: Required value: cannot be 0 when maxSurge is 0",
    ),
    (
        workload("Job", "batch/v1", template=template("Always")),
        'spec.template.spec.restartPolicy: Required value: valid values: "OnFailure", "Never"',
    ),
    (job(completionMode="Indexed", parallelism=2), "spec.completions: Required value: when completion mode is Indexed"),
    (job(parallelism=-1), "spec.parallelism: Invalid value: -1: must be greater than or equal to 0"),
    (
        workload("CronJob", "batch/v1", schedule="* * *", jobTemplate={"spec": {"template": template("Never")}}),
        'spec.schedule: Invalid value: "* * *": expected exactly 5 fields, found 3: [* * *]',
    ),
    (
        workload(
            "CronJob",
            "batch/v1",
            schedule="* * * * *",
            timeZone="Mars/Base",
            jobTemplate={"spec": {"template": template("Never")}},
        ),
        'spec.timeZone: Invalid value: "Mars/Base": unknown time zone Mars/Base',
    ),
    (
        workload("ReplicationController", "v1", selector={"app": "x"}),
        'spec.template.metadata.labels: Invalid value: {"app":"web"}: `selector` does not match template `labels`',
    ),
]


@pytest.mark.parametrize(("obj", "message"), REFUSED, ids=[f"{o['kind']} {m[:60]}" for o, m in REFUSED])
def test_a_bad_workload_is_refused_in_upstreams_words(obj: Object, message: str) -> None:
    assert message in problems(obj)


@pytest.mark.parametrize("kind", ["Deployment", "ReplicaSet", "DaemonSet"])
def test_the_selector_of_a_workload_may_not_change(kind: str) -> None:
    labels = {"app": "web", "tier": "front"}
    old = created(workload(kind, template=template(**labels)))
    new = copy.deepcopy(old)
    new["spec"]["selector"] = {"matchLabels": labels}
    (found,) = update_problems(old, new)
    assert found == 'spec.selector: Invalid value: {"matchLabels":{"app":"web","tier":"front"}}: field is immutable'


def test_a_statefulsets_pods_may_mount_its_claims() -> None:
    mounting = {**template(), "spec": {"containers": [container(volumeMounts=[{"name": "d", "mountPath": "/d"}])]}}
    claim = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}
    claims = [{"metadata": {"name": "d"}, "spec": claim}]
    assert problems(workload("StatefulSet", template=mounting, volumeClaimTemplates=claims)) == []
    assert problems(workload("StatefulSet", template=mounting)) == [
        'spec.template.spec.containers[0].volumeMounts[0].name: Not found: "d"'
    ]


@pytest.mark.parametrize(("number", "refused"), [(256, False), (257, True)])
def test_a_set_has_a_limited_number_of_claims_for_each_pod(number: int, refused: bool) -> None:
    claim = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1"}}}}
    claims = [{"metadata": {"name": f"c{n}"}, **claim} for n in range(number)]
    message = "spec.volumeClaimTemplates: Too many: 257: must have at most 256 items"
    assert (message in str(problems(workload("StatefulSet", volumeClaimTemplates=claims)))) == refused


def test_most_of_a_statefulset_may_not_change() -> None:
    old = created(workload("StatefulSet"))
    new = copy.deepcopy(old)
    new["spec"]["replicas"] = 5
    assert update_problems(old, new) == []
    new["spec"]["serviceName"] = "other"
    assert update_problems(old, new) == [
        "spec: Forbidden: updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', "
        "'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are "
        "forbidden"
    ]


def test_a_jobs_template_may_not_change_unless_it_is_suspended() -> None:
    old = created(job())
    new = copy.deepcopy(old)
    new["spec"]["template"]["spec"]["nodeSelector"] = {"zone": "a"}
    (found,) = update_problems(old, new)
    assert found.startswith("spec.template: Invalid value: ") and found.endswith(": field is immutable")
    resting = created(job(suspend=True))
    new["spec"]["suspend"] = False
    assert update_problems(resting, new) == []


@pytest.mark.parametrize(
    ("schedule", "problem"),
    [
        ("*/5 * * * *", ""),
        ("0 3 1-15 jan,jul mon-fri", ""),
        ("@hourly", ""),
        ("@every 1h30m", ""),
        ("61 * * * *", "end of range (61) above maximum (59): 61"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("x * * * *", 'failed to parse int from x: strconv.Atoi: parsing "x": invalid syntax'),
        ("@sometimes", "unrecognized descriptor: @sometimes"),
        ("0," * 2043 + "0 * * * *", ""),
        ("0," * 2044 + "0 * * * *", "may not be more than 4096 characters"),
        ("TZ=UTC * * * * *", ""),
        ("CRON_TZ=UTC 61 * * * *", "end of range (61) above maximum (59): 61"),
    ],
)
def test_a_schedule_is_read_as_cron_reads_it(schedule: str, problem: str) -> None:
    assert schedule_problem(schedule) == problem


def test_rows_of_workloads() -> None:
    deployment = created(workload("Deployment", replicas=3))
    deployment["status"] = {"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2}
    assert cells(deployment) == {
        "Name": "web",
        "Ready": "2/3",
        "Up-to-date": 3,
        "Available": 2,
        "Age": "5m",
        "Containers": "c",
        "Images": "nginx:1.27",
        "Selector": "app=web",
    }
    replicaset = created(workload("ReplicaSet", replicas=3))
    replicaset["status"] = {"replicas": 2, "readyReplicas": 1}
    assert list(cells(replicaset).values())[:5] == ["web", 3, 2, 1, "5m"]
    daemon = created(workload("DaemonSet"))
    daemon["status"] = {
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3,
        "numberReady": 2,
        "updatedNumberScheduled": 1,
        "numberAvailable": 2,
    }
    assert list(cells(daemon).values()) == ["web", 3, 3, 2, 1, 2, "<none>", "5m", "c", "nginx:1.27", "app=web"]


@pytest.mark.parametrize(
    ("spec", "status", "expected"),
    [
        ({}, {"startTime": "2026-01-02T11:59:30Z"}, ("Running", "0/1", "30s")),
        (
            {},
            {
                "succeeded": 1,
                "startTime": "2026-01-02T11:50:00Z",
                "completionTime": "2026-01-02T11:52:05Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
            ("Complete", "1/1", "2m5s"),
        ),
        ({"completions": 5}, {"conditions": [{"type": "Failed", "status": "True"}]}, ("Failed", "0/5", "")),
        ({"parallelism": 3}, {"succeeded": 1}, ("Running", "1/1 of 3", "")),
        ({"suspend": True}, {"conditions": [{"type": "Suspended", "status": "True"}]}, ("Suspended", "0/1", "")),
    ],
)
def test_rows_of_jobs(spec: Object, status: Object, expected: tuple[str, str, str]) -> None:
    obj = created(job(**spec))
    obj["status"] = status
    row = cells(obj)
    assert (row["Status"], row["Completions"], row["Duration"]) == expected
