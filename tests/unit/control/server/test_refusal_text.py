"""Text of refused requests in the journal: words that the server knows, whatever the error has."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.server.refusal_text import CAUSES, LONGEST_PATH, REASONS, known_path, text_of
from kube.errors import StatusError, invalid, invalid_value, not_supported
from kube.resources import by_path

SECRETS, PODS = by_path("", "v1", "secrets"), by_path("", "v1", "pods")
VALUES = st.text("ЖЩЮЯ[].0/*", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("spec.containers[0].image", "spec.containers[0].image"),
        (
            "spec.containers[0].env[12].valueFrom.secretKeyRef.name",
            "spec.containers[0].env[12].valueFrom.secretKeyRef.name",
        ),
        ("spec.containers[hunter2].image", "spec.containers.*"),
        ("spec.hunter2", "spec.*"),
        ("metadata.labels[a.b/c].x", "metadata.labels.*"),
        ("metadata.annotations.hunter2", "metadata.annotations.*"),
        ("metadata.name", "metadata.name"),
        ("hunter2", "*"),
        ("[0]", "*"),
        ("spec..image", "spec.*"),
        ("patch", "patch"),
        ("fieldManager", "fieldManager"),
    ],
)
def test_a_path_has_the_fields_of_its_kind_and_no_keys_of_maps(path: str, shown: str) -> None:
    assert known_path(path, PODS) == shown


def test_of_a_long_path_the_beginning_is_shown() -> None:
    definitions = by_path("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    begin = "spec.versions[0].schema.openAPIV3Schema"
    assert known_path(f"{begin}{'.not' * 9}", definitions) == f"{begin}{'.not' * 9}"
    shown = known_path(f"{begin}{'.not' * 50_000}", definitions)
    assert shown.startswith(f"{begin}.not.not") and shown.endswith(".not.*") and len(shown) < LONGEST_PATH + 10


def test_of_custom_resources_only_the_first_field_is_shown() -> None:
    assert known_path("spec.password[hunter2]", None) == "spec" and known_path("hunter2.spec", None) == "*"


def test_an_error_is_shown_by_its_code_reason_plugin_and_fields() -> None:
    problems = [not_supported("type", "hunter2", ["Opaque"]), invalid_value("data[hunter2]", "hunter2", "no hunter2")]
    error = invalid("", "Secret", "db", [*problems, problems[1]])
    assert text_of(error, SECRETS) == "(422 Invalid): type (FieldValueNotSupported), data.* (FieldValueInvalid)"
    error.refused_by = "admission webhook checks.example.org"
    assert text_of(error, SECRETS).startswith("(422 Invalid) by admission webhook checks.example.org: type")


@given(VALUES, VALUES, st.lists(st.dictionaries(st.sampled_from(["field", "reason", "message", "x"]), VALUES) | VALUES))
def test_nothing_that_another_server_answers_is_shown(reason: str, message: str, causes: list[object]) -> None:
    for resource in (SECRETS, PODS, None):
        text = text_of(StatusError(403, reason, message, {"causes": causes, "name": message}), resource)
        assert re.fullmatch(r"[a-zA-Z0-9 ().,:*\[\]]+", text), text
        assert set(re.findall("[A-Za-z]+", text)) <= REASONS | CAUSES, text


@pytest.mark.parametrize("causes", [None, {}, "x", [None], [{"field": 1, "reason": []}], [{"field": None}]])
def test_details_of_other_forms_are_left_out(causes: object) -> None:
    assert text_of(StatusError(400, "BadRequest", "m", {"causes": causes}), PODS) == "(400 BadRequest)"


def test_a_reason_that_is_no_text_is_left_out() -> None:
    assert (
        text_of(StatusError(422, "Invalid", "m", {"causes": [{"field": "spec", "reason": []}]}), PODS)
        == "(422 Invalid): spec"
    )
