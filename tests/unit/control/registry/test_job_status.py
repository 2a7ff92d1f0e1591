"""Changes of a Job's status: contradictions, immutable fields, and unchanged values that are not checked."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from control.registry.batch.job_status import IndexesError, intervals
from kube.json_object import Object
from tests.unit.control.registry.strategies import container, created, update_problems

START, LATER, EARLIER = "2026-01-01T00:00:00Z", "2026-01-01T00:00:01Z", "2025-12-31T23:59:59Z"


def job(status: Object, **spec: Any) -> Object:
    template = {"spec": {"restartPolicy": "Never", "containers": [container()]}}
    found = created(
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": "j", "namespace": "default", "uid": "u"},
            "spec": {"template": template, **spec},
        }
    )
    found["status"] = copy.deepcopy(status)
    return found


def true(*names: str) -> list[Object]:
    return [{"type": name, "status": "True"} for name in names]


COMPLETE: Object = {
    "startTime": START,
    "completionTime": LATER,
    "succeeded": 1,
    "conditions": true("SuccessCriteriaMet", "Complete"),
}
FAILED: Object = {"startTime": START, "failed": 1, "conditions": true("FailureTarget", "Failed")}
INDEXED: Object = {"completionMode": "Indexed", "completions": 5, "parallelism": 2, "backoffLimitPerIndex": 1}
WRONG: list[tuple[Object, Object, Object, list[str]]] = [
    ({}, {}, {}, []),
    ({"startTime": START}, COMPLETE, {}, []),
    ({"startTime": START}, FAILED, {}, []),
    (
        {},
        {**COMPLETE, "conditions": true("SuccessCriteriaMet", "Complete", "Failed", "FailureTarget")},
        {},
        [
            "status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions",
            "status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions",
            "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions",
            "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ],
    ),
    (
        {"startTime": START},
        {"startTime": START, "completionTime": EARLIER},
        {},
        [
            f'status.completionTime: Invalid value: "{EARLIER}": cannot set completionTime when there is no Complete=True '
            "condition",
            f'status.completionTime: Invalid value: "{EARLIER}": must be equal to or after `startTime`',
        ],
    ),
    (
        {},
        {"conditions": true("Complete"), "active": 1, "terminating": 1, "uncountedTerminatedPods": {"failed": ["u"]}},
        {},
        [
            "status.completionTime: Required value: completionTime is required for Complete jobs",
            "status.conditions: Invalid value: cannot set Complete=True condition without the SuccessCriteriaMet=true "
            "condition",
            "status.active: Invalid value: 1: active>0 is invalid for finished job",
            "status.startTime: Required value: startTime is required for finished job",
            'status.uncountedTerminatedPods: Invalid value: {"Succeeded":null,"Failed":["u"]}: must be empty for finished '
            "job",
            "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job",
        ],
    ),
    (
        {"startTime": START},
        {"startTime": START, "conditions": true("Failed")},
        {},
        ["status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true condition"],
    ),
    ({}, {"ready": 2, "active": 1}, {}, ["status.ready: Invalid value: 2: cannot set more ready pods than active"]),
    (
        COMPLETE,
        {"startTime": LATER, "completionTime": "2026-01-01T00:00:02Z"},
        {},
        [
            'status.completionTime: Invalid value: "2026-01-01T00:00:02Z": cannot set completionTime when there is no '
            "Complete=True condition",
            "status.conditions: Invalid value: cannot disable the terminal Complete=True condition",
            "status.succeeded: Invalid value: 0: cannot decrease the succeeded counter",
            'status.completionTime: Invalid value: "2026-01-01T00:00:02Z": field is immutable',
            f'status.startTime: Invalid value: "{LATER}": field is immutable for unsuspended job once set',
            "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition",
        ],
    ),
    (FAILED, {**FAILED, "failed": 0}, {}, ["status.failed: Invalid value: 0: cannot decrease the failed counter"]),
    ({"startTime": START, "failed": 1}, {"failed": 1}, {"suspend": True}, []),
    (
        {"startTime": START, "conditions": true("Suspended")},
        {"startTime": LATER, "conditions": [{"type": "Suspended", "status": "False"}]},
        {},
        [],
    ),
    (
        {},
        {"completedIndexes": "1"},
        {},
        [
            'status.completedIndexes: Invalid value: "1": error parsing completedIndexes: too large index: "1"',
            'status.completedIndexes: Invalid value: "1": cannot set non-empty completedIndexes when non-indexed '
            "completion mode",
        ],
    ),
    ({}, {"completedIndexes": "0,2-3", "failedIndexes": "1"}, INDEXED, []),
    (
        {},
        {"completedIndexes": "0,2-4", "failedIndexes": "3"},
        INDEXED,
        ['status.failedIndexes: Invalid value: "3": failedIndexes and completedIndexes overlap at index: 3'],
    ),
    (
        {},
        {"failedIndexes": ""},
        {},
        [
            'status.failedIndexes: Invalid value: "": cannot set non-null failedIndexes when backoffLimitPerIndex is null'
        ],
    ),
    (
        {},
        {"failedIndexes": "0"},
        {},
        [
            'status.failedIndexes: Invalid value: "0": cannot set non-null failedIndexes when backoffLimitPerIndex is null'
        ],
    ),
    (
        {"conditions": true("Complete"), "startTime": START, "completionTime": LATER},
        COMPLETE,
        {},
        [
            "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job already has Complete=true "
            "conditions"
        ],
    ),
    ({"succeeded": 3}, {"succeeded": 2}, {**INDEXED, "parallelism": 5}, []),
    # What an update leaves as it is, is not checked.
    (
        {"ready": 2, "active": 1, "completedIndexes": "9", "completionTime": EARLIER, "startTime": START},
        {"ready": 2, "active": 1, "completedIndexes": "9", "completionTime": EARLIER, "startTime": START, "failed": 1},
        {},
        [],
    ),
]


@pytest.mark.parametrize(("before", "after", "spec", "expected"), WRONG, ids=[str(w[3][:1])[:70] for w in WRONG])
def test_changes_of_a_status(before: Object, after: Object, spec: Object, expected: list[str]) -> None:
    assert update_problems(job(before, **spec), job(after, **spec), "status") == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", 'cannot convert string to integer for index: "a"'),
        ("1-", 'cannot convert string to integer for index: ""'),
        (
            "1-2-3",
            'the fragment "1-2-3" violates the requirement that an index interval can have at most two parts '
            "separated by '-'",
        ),
        ("7-9,10", 'too large index: "10"'),
        ("3-3", "non-increasing order, previous: 3, current: 3"),
        ("3,2", "non-increasing order, previous: 3, current: 2"),
    ],
)
def test_indexes_that_cannot_be_read(text: str, problem: str) -> None:
    with pytest.raises(IndexesError) as raised:
        list(intervals(text, 10))
    assert str(raised.value) == problem
