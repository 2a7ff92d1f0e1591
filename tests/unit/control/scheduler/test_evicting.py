"""Deletion of victims: one that another pod has replaced meanwhile keeps none of the others."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from control.scheduler.writing import Writer
from kube import errors
from kube.errors import StatusError
from tests.support.clock import FakeClock

from .clusters import pod

UID = errors.invalid_value("metadata.uid", "u", "field is immutable")


@pytest.mark.parametrize(
    "error",
    [
        errors.invalid("", "Pod", "replaced", [UID]),
        errors.conflict("", "pods", "replaced", "Precondition failed"),
        errors.not_found("", "pods", "replaced"),
    ],
    ids=["uid", "conflict", "not found"],
)
async def test_a_victim_that_is_gone_or_replaced_is_passed_over(error: StatusError) -> None:
    deleted: list[str] = []

    class Client:
        async def patch(self, kind: object, name: str, *_: object, **__: object) -> None:
            if name == "replaced":
                raise error

        async def delete(self, kind: object, name: str, *_: object, **__: object) -> None:
            deleted.append(name)

    writer = Writer.__new__(Writer)
    recorder = SimpleNamespace(event=lambda *_, **__: None)
    writer._client, writer._clock, writer._recorder = cast(Any, Client()), FakeClock(), cast(Any, recorder)
    victims = [SimpleNamespace(pod=pod(name), uid=f"uid-{name}") for name in ("replaced", "second")]
    preemptor = SimpleNamespace(pod=pod("high"), uid="uid-high")
    await writer.evict(cast(Any, SimpleNamespace(node="n1", pods=victims)), cast(Any, preemptor))
    assert deleted == ["second"]
