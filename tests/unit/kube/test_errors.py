"""Errors as the Status that clients get."""

from __future__ import annotations

import pytest

from kube import errors
from kube.errors import StatusError


def test_a_status_names_so_many_causes() -> None:
    problems = [errors.required(f"spec.items[{index}]") for index in range(errors.MOST_CAUSES + 5)]
    found = errors.invalid("", "Pod", "a", problems)
    assert len(found.details["causes"]) == errors.MOST_CAUSES
    assert found.message.endswith(", and 5 more]")


def test_a_status_is_bounded_however_large_values_are_and_however_many_errors_show_them() -> None:
    owners = [{"kind": "C", "name": "a" * 100} for _ in range(10_000)]
    problems = [errors.invalid_value("metadata.ownerReferences", owners, "only one") for _ in range(10_000)]
    error = errors.invalid("", "ConfigMap", "m", problems)
    causes = error.details["causes"]
    assert (
        len(error.message) < 2 * errors.MOST_TEXT and sum(len(cause["message"]) for cause in causes) <= errors.MOST_TEXT
    )
    assert error.message.endswith(f", and {10_000 - len(causes)} more]")
    assert causes[0]["message"].endswith("...: only one") and len(causes[0]["message"]) < errors.MOST_SHOWN + 100


def test_a_value_that_is_long_is_shown_by_its_beginning() -> None:
    text = errors.invalid_value("a", ["x" * errors.MOST_SHOWN, "y" * errors.MOST_SHOWN], "bad").body
    assert text.startswith('Invalid value: ["xxx') and "y" not in text and text.endswith("...: bad")
    assert (
        errors.invalid_value("a", {"k": ["v", 1, None, True]}, "bad").body
        == 'Invalid value: {"k":["v",1,null,true]}: bad'
    )


@pytest.mark.parametrize(
    ("error", "replaced"),
    [
        (errors.conflict("", "pods", "p", "x"), True),
        (errors.invalid("", "Pod", "p", [errors.invalid_value("metadata.uid", "u", "field is immutable")]), True),
        (errors.invalid("", "Pod", "p", [errors.invalid_value("metadata.name", "u", "field is immutable")]), False),
        (errors.not_found("", "pods", "p"), False),
    ],
)
def test_an_object_is_another_one_by_a_conflict_or_by_the_uid_of_a_patch(error: StatusError, replaced: bool) -> None:
    assert error.replaced is replaced
    assert StatusError.from_status(error.to_status()).replaced is replaced
