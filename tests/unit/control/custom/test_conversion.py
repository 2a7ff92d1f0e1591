"""Conversion of lists: in batches of limited size, and of large objects outside the event loop."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

from control.custom import conversion, conversion_response
from control.custom.conversion import BATCH_BYTES, Reader, Versions
from control.custom.conversion_response import Expected
from control.schemas.schema import compile_root
from control.storage import codec
from control.storage.entry import Entry
from kube.errors import StatusError
from kube.json_object import Object

TEXTS: Object = {"type": "array", "items": {"type": "string"}}
SCHEMA: Object = {"type": "object", "properties": {"spec": TEXTS}}


class Webhook:
    """Converts by renaming; records the number of objects and bytes of each review."""

    def __init__(self) -> None:
        self.reviews: list[tuple[int, int]] = []

    async def call(self, client: Object, body: Object, timeout: float, owner: str = "") -> bytes:
        data = msgspec.json.encode(body)
        review = msgspec.json.decode(data)
        request = review["request"]
        self.reviews.append((len(request["objects"]), len(data)))
        made = [{**obj, "apiVersion": request["desiredAPIVersion"], "unknown": 1} for obj in request["objects"]]
        response = {"uid": request["uid"], "result": {"status": "Success"}, "convertedObjects": made}
        return msgspec.json.encode({**review, "request": None, "response": response})


def reader(webhook: Webhook, *, strategy: str = "Webhook", served: str = "v2") -> Reader:
    versions = [{"name": name, "storage": name == "v1"} for name in ("v1", "v2")]
    spec: Object = {"group": "e.com", "names": {"kind": "Foo"}, "versions": versions}
    if strategy == "Webhook":
        clients = {"conversionReviewVersions": ["v1"], "clientConfig": {"url": "https://hook"}}
        spec["conversion"] = {"strategy": "Webhook", "webhook": clients}
    schema = compile_root(SCHEMA)
    return Reader(Versions({"spec": spec}, {"v1": schema, "v2": schema}, webhook), served)


def entry(name: str, values: int) -> Entry:
    obj = {"kind": "Foo", "apiVersion": "e.com/v1", "metadata": {"name": name}, "spec": ["x" * 20] * values}
    return Entry(f"/registry/e.com/foos/{name}", 7, codec.with_revision(codec.encode(obj), 7), lambda obj: {})


async def test_a_list_is_converted_in_batches_and_in_its_order() -> None:
    webhook = Webhook()
    entries = [entry(f"n{number}", 2000 if number % 2 else 20) for number in range(40)]
    shown = await reader(webhook).view(entries)
    assert [msgspec.json.decode(each.data)["metadata"]["name"] for each in shown] == [f"n{n}" for n in range(40)]
    assert all(msgspec.json.decode(each.data)["apiVersion"] == "e.com/v2" for each in shown)
    assert not any("unknown" in msgspec.json.decode(each.data) for each in shown)
    assert sum(number for number, _ in webhook.reviews) == 40 and len(webhook.reviews) > 2
    assert max(size for _, size in webhook.reviews) < BATCH_BYTES + 2 * len(entries[1].data)
    webhook.reviews.clear()
    await reader(webhook).view(entries)
    assert webhook.reviews, "another reader has its own views"


@pytest.mark.parametrize("strategy", ["Webhook", "None"])
@pytest.mark.parametrize("served", ["v1", "v2"])
async def test_large_objects_are_converted_outside_the_event_loop(
    monkeypatch: pytest.MonkeyPatch, strategy: str, served: str
) -> None:
    threads: dict[str, set[int]] = {}

    def recorded(module: Any, name: str) -> None:
        work = getattr(module, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return work(*args, **kwargs)

        monkeypatch.setattr(module, name, call)

    recorded(conversion, "prune")
    recorded(conversion_response, "read")
    tested, large = reader(Webhook(), strategy=strategy, served=served), entry("a", 20000)
    await tested.view([large])
    await tested.read(entry("b", 20000))
    await tested.to_stored({**large.obj, "apiVersion": f"e.com/{served}"})
    assert "prune" in threads and threading.get_ident() not in set().union(*threads.values())


def response(obj: object, **more: object) -> bytes:
    given = {"uid": "u", "result": {"status": "Success"}, "convertedObjects": [obj], **more}
    return msgspec.json.encode({"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": given})


EXPECTED = Expected("apiextensions.k8s.io/v1", "u", "Foo", "e.com/v2", "e.com/v1, Kind=Foo")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"3", "expected apiextensions.k8s.io/v1, Kind=ConversionReview"),
        (response({}, result="no"), "response.result.status was ''"),
        (response({}, result={"status": "Failure", "message": "not now"}), "not now"),
        (response({}, convertedObjects={}), "response.convertedObjects"),
        (response({}, convertedObjects=None), "returned 0 objects, expected 1"),
        (response(3), "invalid converted object at index 0"),
        (response({"spec": "x" * conversion_response.ANSWER_LIMIT}), "at index 0 has"),
    ],
)
def test_a_response_that_is_no_conversion_is_refused(answer: bytes, problem: str) -> None:
    sent: list[Object] = [{"metadata": {"name": "a"}}]
    with pytest.raises((conversion_response.BadConversion, StatusError), match=problem):
        conversion_response.read(answer, EXPECTED, sent, lambda obj: obj)
