"""Labels that a namespaceSelector is compared with (upstream: webhook/predicates/namespace, GetNamespaceLabels)."""

from __future__ import annotations

from typing import Any

import pytest

from control.admission.matching import selected
from control.interfaces.admission import Operation
from tests.support.lookup import Objects, attributes

OWNER = {"metadata": {"name": "policy"}}
PRODUCTION = {"namespaceSelector": {"matchLabels": {"env": "prod"}}}


def namespace(env: str) -> dict[str, Any]:
    return {"metadata": {"name": "ns", "labels": {"env": env}}}


@pytest.mark.parametrize(
    ("operation", "subresource", "new", "old", "chosen"),
    [
        ("CREATE", "", "prod", None, True),
        ("CREATE", "", "test", None, False),
        ("UPDATE", "", "prod", "test", True),
        ("UPDATE", "", "test", "prod", False),
        ("UPDATE", "finalize", "test", "prod", True),
        ("UPDATE", "status", "prod", "test", False),
        ("DELETE", "", None, "prod", True),
        ("DELETE", "", None, "test", False),
    ],
)
async def test_a_namespace_is_judged_by_the_labels_it_is_to_have(
    operation: Operation, subresource: str, new: str | None, old: str | None, chosen: bool
) -> None:
    stored = Objects() if old is None else Objects(("namespaces", namespace(old)))
    request = attributes(
        "namespaces",
        operation,
        None if new is None else namespace(new),
        None if old is None else namespace(old),
        name="ns",
        subresource=subresource,
    )
    assert await selected(stored, PRODUCTION, request, OWNER, "spec") is chosen


async def test_without_the_old_object_the_stored_namespace_counts() -> None:
    request = attributes("namespaces", "CREATE", {"kind": "Other"}, name="ns", subresource="other")
    assert await selected(Objects(("namespaces", namespace("prod"))), PRODUCTION, request, OWNER, "spec")
