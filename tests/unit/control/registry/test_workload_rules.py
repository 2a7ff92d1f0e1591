"""Rules of workloads that upstream's own tests check: the object, and the exact errors."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kube.json_object import Object
from tests.unit.control.registry.strategies import created, pod, problems, update_problems

LABELS = {"app": "x"}
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an "
    "alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)


def workload(kind: str, template: Object | None = None, **spec: Any) -> Object:
    template = {"metadata": {"labels": LABELS}, "spec": pod()["spec"]} if template is None else template
    metadata = {"name": "x", "namespace": "default"}
    parts = {"selector": {"matchLabels": LABELS}, "template": template, **spec}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": parts}


def cron_job(**spec: Any) -> Object:
    template = {"spec": pod(restartPolicy="Never")["spec"]}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "x", "namespace": "default"},
        "spec": {"schedule": "@daily", "jobTemplate": {"spec": {"template": template}}, **spec},
    }


def revision(data: Any) -> Object:
    metadata = {"name": "x", "namespace": "default"}
    return {"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": metadata, "data": data, "revision": 1}


WRONG_KEY = {"matchLabels": {"A=": "b"}}
LOCAL = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
CASES: list[tuple[Object, list[str]]] = [
    (
        workload("DaemonSet", updateStrategy={"type": "Random"}),
        [
            'spec.updateStrategy: Unsupported value: {"Type":"Random","RollingUpdate":null}: supported values: '
            '"RollingUpdate", "OnDelete"'
        ],
    ),
    (
        workload("Deployment", strategy={"type": "R", "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 1}}),
        [
            'spec.strategy: Unsupported value: {"Type":"R","RollingUpdate":{"MaxUnavailable":1,"MaxSurge":1}}: supported '
            'values: "Recreate", "RollingUpdate"'
        ],
    ),
    (
        workload("StatefulSet", persistentVolumeClaimRetentionPolicy={"whenDeleted": "No"}),
        [
            'spec.persistentVolumeClaimRetentionPolicy.whenDeleted: Unsupported value: "No": supported values: "Retain", '
            '"Delete"'
        ],
    ),
    (workload("StatefulSet", serviceName="A.b"), [f'spec.serviceName: Invalid value: "A.b": {LABEL}']),
    (
        workload("StatefulSet", volumeClaimTemplates=[{"metadata": {"name": "c"}, "spec": {}}]),
        [
            "spec.volumeClaimTemplates[0].spec.accessModes: Required value: at least 1 access mode is required",
            "spec.volumeClaimTemplates[0].spec.resources[storage]: Required value",
        ],
    ),
    (workload("StatefulSet", {"metadata": {"labels": LABELS}, "spec": pod(hostname="A", subdomain="B")["spec"]}), []),
    (
        workload("Deployment", {"metadata": {}, "spec": pod()["spec"]}),
        ["spec.template.metadata.labels: Invalid value: null: `selector` does not match template `labels`"],
    ),
    (
        workload("Deployment", selector=WRONG_KEY),
        [
            f'spec.selector.matchLabels: Invalid value: "A=": {KEY}',
            'spec.selector: Invalid value: {"matchLabels":{"A=":"b"}}: invalid label selector',
        ],
    ),
    (
        workload("DaemonSet", selector=None),
        [
            'spec.template.metadata.labels: Invalid value: {"app":"x"}: `selector` does not match template `labels`',
        ],
    ),
    (workload("DaemonSet", selector=WRONG_KEY), [f'spec.selector.matchLabels: Invalid value: "A=": {KEY}']),
    (revision([1]), ["data: Required value: data must be a valid JSON object"]),
    (revision({}), []),
    (cron_job(timeZone="Local"), [f'spec.timeZone: Invalid value: "Local": {LOCAL}']),
    (
        cron_job(timeZone="LOCAL"),
        [
            f'spec.timeZone: Invalid value: "LOCAL": {LOCAL}',
            'spec.timeZone: Invalid value: "LOCAL": unknown time zone LOCAL',
        ],
    ),
    (
        cron_job(schedule="TZ=UTC @daily"),
        [
            'spec.schedule: Invalid value: "TZ=UTC @daily": cannot use TZ or CRON_TZ in schedule, use timeZone field '
            "instead"
        ],
    ),
]


@pytest.mark.parametrize(("obj", "expected"), CASES)
def test_what_is_wrong_is_named_as_upstream_names_it(obj: Object, expected: list[str]) -> None:
    assert problems(obj) == expected


def test_a_stored_schedule_with_a_time_zone_stays_changeable() -> None:
    old = created(cron_job(schedule="TZ=UTC @daily"))
    new = copy.deepcopy(old)
    new["spec"]["suspend"] = True
    assert not update_problems(old, new)
    new["spec"]["timeZone"] = "UTC"
    assert update_problems(old, new) == [
        'spec.schedule: Invalid value: "TZ=UTC @daily": cannot use both timeZone field and TZ or CRON_TZ in schedule'
    ]


def test_an_update_does_not_check_what_a_stateful_set_cannot_change() -> None:
    old = created(workload("StatefulSet", serviceName="A.b", volumeClaimTemplates=[{"metadata": {"name": "c"}}]))
    new = copy.deepcopy(old)
    new["spec"]["replicas"] = 2
    assert not update_problems(old, new)


def test_the_template_of_a_wrong_stateful_set_is_not_checked_again() -> None:
    old = created(workload("StatefulSet"))
    old["spec"]["template"]["spec"]["containers"] = []
    new = copy.deepcopy(old)
    new["spec"]["replicas"] = 2
    assert not update_problems(old, new)
    new["spec"]["replicas"] = -1
    assert update_problems(old, new) == ["spec.replicas: Invalid value: -1: must be greater than or equal to 0"]


@pytest.mark.parametrize("kind", ["Deployment", "StatefulSet", "DaemonSet"])
def test_collisions_are_not_counted_down(kind: str) -> None:
    old = created(workload(kind))
    new = copy.deepcopy(old)
    old.setdefault("status", {})["collisionCount"] = 2
    new.setdefault("status", {})["collisionCount"] = 1
    text = "status.collisionCount: Invalid value: 1: cannot be decremented"
    assert update_problems(old, new, "status") == [text]
