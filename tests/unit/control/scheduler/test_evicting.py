"""Writes about pods that are gone or replaced: they prevent no deletion of other victims, and leave nothing in memory."""

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


GONE = pytest.mark.parametrize(
    "error",
    [
        errors.invalid("", "Pod", "replaced", [UID]),
        errors.conflict("", "pods", "replaced", "Precondition failed"),
        errors.not_found("", "pods", "replaced"),
    ],
    ids=["uid", "conflict", "not found"],
)


@GONE
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


@GONE
async def test_nothing_is_kept_of_a_pod_that_is_gone_before_its_failure_is_written(error: StatusError) -> None:
    class Client:
        gone = False

        async def patch(self, *_: object, **__: object) -> None:
            if self.gone:
                raise error

    client, recorder = Client(), SimpleNamespace(event=lambda *_, **__: None)
    writer = Writer(cast(Any, client), cast(Any, recorder), FakeClock())
    info: Any = SimpleNamespace(pod=pod("p"), uid="uid-p")
    await writer.expect(info, "n")
    client.gone = True
    with pytest.raises(StatusError):
        await writer.failed(info, "SchedulerError", "it failed")
    assert not writer._expected
