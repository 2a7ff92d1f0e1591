"""Errors as the Status that clients get."""

from __future__ import annotations

from kube import errors


def test_a_status_names_so_many_causes() -> None:
    problems = [errors.required(f"spec.items[{index}]") for index in range(errors.MOST_CAUSES + 5)]
    found = errors.invalid("", "Pod", "a", problems)
    assert len(found.details["causes"]) == errors.MOST_CAUSES
    assert found.message.endswith(", and 5 more]")
