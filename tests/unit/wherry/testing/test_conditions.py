"""Conditions of waits: those that no object can meet are errors at once, and a failed wait says what was seen."""

from __future__ import annotations

from typing import Any

import pytest

from wherry.testing import conditions
from wherry.testing.errors import ClusterError

POD = {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}, "spec": {"nodeName": "n"}}


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("Ready=Maybe", "the status of Ready is True, False or Unknown"),
        ("phase=Running", r"no condition: 'phase=Running': .*fields are written with a dot \(status\.phase=Running\)"),
        ("status.phse=Running", "Pod has no field status.phse: not phse, but one of .*, phase, "),
        ("status.containerStatuses.ready=true", "not ready, but one of 0, 1"),
        ("status.containerStatuses.0.redy=true", "not redy, but one of .*, ready, "),
        ("=x", "no condition: '=x'"),
    ],
)
def test_a_condition_that_can_never_be_true_is_one_sentence(condition: str, message: str) -> None:
    with pytest.raises(ClusterError, match=message) as caught:
        conditions.compiled(condition, "v1", "Pod")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("condition", "met"),
    [
        ("Ready", True),
        ("Ready=False", False),
        ("status.phase=Running", True),
        (".spec.nodeName", True),
        ("metadata.labels.anything.at.all=1", False),
        ("spec.containers.0.resources.limits.cpu=1", False),
        ("kind.x", False),
        ("exists", True),
        ("deleted", False),
        (lambda obj: obj["spec"], True),
    ],
)
def test_conditions_of_known_fields(condition: Any, met: bool) -> None:
    assert bool(conditions.compiled(condition, "v1", "Pod")(POD)) is met


def test_custom_resources_may_have_any_field() -> None:
    assert conditions.compiled("status.anything=1", "example.org/v1", "Ship")({"status": {"anything": 1}})


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("status.phase=Failed", "status.phase=Running, phase=Running, Ready=True"),
        ("spec.hostname=x", "no spec.hostname, phase=Running, Ready=True"),
        ("Ready=False", "phase=Running, Ready=True"),
        ("deleted", "phase=Running, Ready=True"),
    ],
)
def test_what_was_seen_begins_with_the_field_of_the_condition(condition: str, text: str) -> None:
    assert conditions.seen(POD, condition) == text
    assert conditions.seen({}, condition) == "it does not exist"


def test_a_function_has_its_name_in_messages() -> None:
    def has_two_pods(obj: Any) -> bool:
        return False

    assert conditions.named(has_two_pods) == "has_two_pods"
    assert conditions.named(lambda obj: False) == "what the function wants"
