"""Values that come from elsewhere than a body pass the checks of a body."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from control.decoding.typed import to_object
from control.registry.served import served
from kube import resources
from kube.api import core_v1, policy_v1

WRONG: list[tuple[type[msgspec.Struct], dict[str, Any], str]] = [
    (core_v1.Pod, {"metadata": {"name": 1}}, "Expected `str"),
    (core_v1.Pod, {"spec": {"containers": [], "terminationGracePeriodSeconds": 2**63}}, "of type int64"),
    (policy_v1.PodDisruptionBudget, {"spec": {"minAvailable": 2**31}}, "of type int32"),
    (core_v1.Pod, {"metadata": {"creationTimestamp": "2020-02-31T00:00:00Z"}}, "day out of range"),
    (core_v1.Pod, {"spec": {"containers": [], "overhead": {"cpu": "much"}}}, "quantities must match"),
]


@pytest.mark.parametrize(("struct", "value", "why"), WRONG)
def test_what_no_body_may_have_is_refused(struct: type[msgspec.Struct], value: dict[str, Any], why: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=why):
        to_object(value, struct)


def test_values_are_in_their_form_and_unknown_fields_are_gone() -> None:
    value = {"metadata": {"name": "a", "colour": 1}, "spec": {"containers": [], "overhead": {"cpu": "1000m"}}}
    found = to_object(value, core_v1.Pod)
    assert found["metadata"] == {"name": "a"} and found["spec"]["overhead"] == {"cpu": "1"}


async def test_what_a_webhook_returns_is_checked_as_a_body_is() -> None:
    pods = resources.by_path("", "v1", "pods")
    assert pods is not None
    with pytest.raises(msgspec.ValidationError, match="of type int64"):
        await served(pods).from_version({"spec": {"containers": [], "activeDeadlineSeconds": 2**63}}, pods)
