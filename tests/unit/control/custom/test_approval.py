"""The condition of a definition in a protected group."""

from __future__ import annotations

import pytest

from control.custom.approval import approval_condition
from control.registry.apiextensions.validation import APPROVED
from tests.support.cost_cases.inputs import combining


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("https://github.com/kubernetes/kubernetes/pull/1", "ApprovedAnnotation"),
        ("unapproved, experimental", "UnapprovedAnnotation"),
        ("", "MissingAnnotation"),
        ("http://[", "InvalidAnnotation"),
        (combining("http://")(62000), "InvalidAnnotation"),
    ],
)
def test_an_annotation_approves_a_definition_if_it_is_a_url(annotation: str, reason: str) -> None:
    definition = {"spec": {"group": "x.k8s.io"}, "metadata": {"annotations": {APPROVED: annotation}}}
    found = approval_condition(definition)
    assert found is not None and found["reason"] == reason
