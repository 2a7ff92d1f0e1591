"""Objects in the store that nest deeper than any body may: they alone are shown with less than they have.

Versions before 0.3 stored up to 934 levels of JSON that came in protobuf, and upstream's server on the same etcd stores 10 000.
"""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from kube.json_object import Object
from kube.nesting import DEEPEST
from tests.support import nesting
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually

LEVELS = (DEEPEST + 1, 600, 934, 2000, 10_000)
FOLDERS = {
    "ConfigMap": ("/registry/configmaps/default/", nesting.CONFIG_MAPS, nesting.config_map),
    "ControllerRevision": ("/registry/controllerrevisions/default/", nesting.REVISIONS, nesting.controller_revision),
    "Things": ("/registry/nesting.example/things/default/", nesting.THINGS, nesting.thing),
    "Pod": ("/registry/pods/default/", f"{nesting.NAMESPACE}/pods", nesting.pod),
}
MERGE = {"Content-Type": "application/merge-patch+json"}


def value_of(obj: Object) -> bytes:
    """Return an object as earlier versions stored it."""
    metadata = {"resourceVersion": "", "uid": f"u-{obj['metadata']['name']}", "namespace": "default", **obj["metadata"]}
    head = {"kind": obj["kind"], "apiVersion": obj["apiVersion"], "metadata": metadata}
    return nesting.json_text({**head, **{key: part for key, part in obj.items() if key not in head}})


async def store(server: ApiUnderTest, levels: tuple[int, ...]) -> None:
    """Store objects of so many levels as another server does, with a watch that tells this one."""
    for prefix, _, build in FOLDERS.values():
        for number in levels:
            obj = build(f"stored{number}", number)
            await server.api.registry.store.create(f"{prefix}stored{number}", value_of(obj))
    await server.api.registry.cache.wait_current()


async def check_works(server: ApiUnderTest, namespace: str) -> None:
    """Check that controllers go on and that everything can be read."""
    made = await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    assert made.status == 201

    async def there() -> bool:
        path = f"/api/v1/namespaces/{namespace}/configmaps/kube-root-ca.crt"
        return (await server.request("GET", path)).status == 200

    await eventually(there)
    for _, place, _ in FOLDERS.values():
        await nesting.check_reads(server, place, f"stored{LEVELS[-1]}")
        listed = await server.request("GET", f"{place}?labelSelector=!a")
        assert {f"stored{number}" for number in LEVELS} <= {item["metadata"]["name"] for item in listed.json["items"]}


async def test_stored_objects_that_nest_too_deep_disturb_no_list_no_watch_no_controller_and_no_restart(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        async with api_server(tmp_path, enable_controllers=True, enable_scheduler=True) as server:
            assert (await server.request("POST", nesting.DEFINITIONS, nesting.THING)).status == 201

            async def served() -> bool:
                return (await server.request("GET", nesting.THINGS)).status == 200

            await eventually(served)
            await store(server, LEVELS)
            await check_works(server, "one")
        assert "/registry/pods/default/stored934 at revision" in caplog.text
        async with api_server(tmp_path, enable_controllers=True, enable_scheduler=True) as server:
            await check_works(server, "two")
            for _, place, _ in FOLDERS.values():
                for number in LEVELS:
                    await change_and_delete(server, f"{place}/stored{number}")
    assert "RecursionError" not in caplog.text
    assert " failed" not in caplog.text


async def change_and_delete(server: ApiUnderTest, path: str) -> None:
    changed = await server.request("PATCH", path, {"metadata": {"labels": {"a": "b"}}}, headers=MERGE)
    assert changed.status == 200, changed.body[:300]
    assert nesting.levels_of(changed.json) <= DEEPEST
    written = await server.request("PUT", path, changed.json)
    assert written.status in (200, 409), written.body[:300]
    assert (await server.request("DELETE", f"{path}?gracePeriodSeconds=0")).status == 200

    async def gone() -> bool:
        return (await server.request("GET", path)).status == 404

    await eventually(gone)
