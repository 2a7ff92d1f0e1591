"""Starts a server with objects in two namespaces, and records from then on what it does in requests."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import Any

from control.aggregation import availability
from control.auth.authorizers import Link
from control.resource_metrics.scraper import Scraper
from control.resource_metrics.usage import NodeUsage, Usage
from control.server import componentstatus
from kube.journal import DENIED, denied_name, kind_key, resource_key
from kube.json_object import Object
from tests.support.authorised import canaries
from tests.support.authorised.backends import dialled
from tests.support.authorised.objects import COMPONENTS as COMPONENT_NAMES
from tests.support.authorised.objects import NAMESPACES, NODES, certificate_request, objects_of
from tests.support.authorised.reads import reads_recorded
from tests.support.authorised.recording import (
    RecordingAdmission,
    RecordingAuthorizer,
    RecordingStore,
    note_read,
    writers_identified,
)
from tests.support.authorised.targets import BOATS, COMPONENTS, CREW, STORED, TARGETS, Target, definition
from tests.support.authorised.world import ADMIN, EXTENSION, FRESH_SECONDS, HEADERS, WATCH_SECONDS, World
from tests.support.control import api_server


@contextlib.asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    """Start a server, put its objects into it and record from then on."""
    kept = availability.check, componentstatus.PARTS, Scraper.usage

    async def available(*_: Any) -> Any:
        return True, "Passed", "all checks passed"

    async def usage(scraper: Scraper, nodes: Iterable[str]) -> dict[str, NodeUsage]:
        used = Usage(time.time(), 10.0, 0.1, 1e6)
        containers = {(namespace, "a", "c"): used for namespace in NAMESPACES}
        return {node: NodeUsage(used, containers) for node in nodes if node in NODES}

    availability.check, componentstatus.PARTS = available, COMPONENT_NAMES
    Scraper.usage = usage  # type: ignore[method-assign]
    try:
        with dialled(), writers_identified(), reads_recorded(note_read):
            plugins = ("OwnerReferencesPermissionEnforcement",)
            async with api_server(directory, enabled_admission=plugins, **HEADERS) as under_test:
                api, authorizer = under_test.api, RecordingAuthorizer()
                made = World(api, under_test, authorizer)
                api.auth.authenticator.replace([made])
                api.auth.authorizer.replace([Link("", "", authorizer)])
                api.watches.min_timeout = WATCH_SECONDS
                api.cache.wait_fresh = functools.partial(api.cache.wait_fresh, timeout=FRESH_SECONDS)  # type: ignore[method-assign]
                api.registry.store = RecordingStore(api.store)  # type: ignore[assignment]
                api.registry.admission = RecordingAdmission(api.registry.admission)
                await _seed(made)
                yield made
    finally:
        availability.check, componentstatus.PARTS, Scraper.usage = kept  # type: ignore[method-assign]


async def _seed(made: World) -> None:
    for namespace in NAMESPACES:
        await _put(made, TARGETS["namespaces"], "", {"metadata": {"name": namespace}})
    for defined in (
        definition(
            "boats",
            "Boat",
            BOATS,
            {"status": {}, "scale": {"specReplicasPath": ".spec.crew", "statusReplicasPath": ".status.crew"}},
        ),
        definition("events", "Event", CREW, {}),
    ):
        await made.admin("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", defined)
    await _served(made, f"boats.{BOATS}")
    await _served(made, f"events.{CREW}")
    made.csr = certificate_request()
    for target in sorted(STORED, key=lambda target: target.plural != "serviceaccounts"):
        if target.plural == "namespaces":
            continue
        for namespace in NAMESPACES if target.namespaced else ("",):
            for obj in objects_of(target, namespace, made.csr):
                await _put(made, target, namespace, obj)
    await _finish(made)
    for path in ("/api/v1/namespaces/right/secrets", "/api/v1/secrets", "/api/v1/namespaces/right/configmaps"):
        made.tokens.append((await made.admin("GET", path, query="limit=1"))["metadata"]["continue"])


async def _served(made: World, name: str) -> None:
    async with asyncio.timeout(20):
        while (await made.send("GET", TARGETS[name].path("left"), "", [], b"", ADMIN)).status != 200:
            await asyncio.sleep(0.02)


async def _put(made: World, target: Target, namespace: str, obj: Object) -> None:
    name = obj["metadata"]["name"]
    own = canaries.text(len(made.seeds))
    status = canaries.status(target, own) | (obj.pop("status", None) or {})
    written = await made.admin("POST", target.path(namespace), canaries.marked(target, obj, own))
    made.add_seed(target, namespace, name, own)
    made.owners[own] = made.owners[canaries.label(own)] = (target, namespace, name)
    _journal(made, target, written, own)
    if status:
        await made.admin(
            "PUT", target.path(namespace, name, "status"), written | {"status": written.get("status", {}) | status}
        )


def _journal(made: World, target: Target, written: Object, own: str) -> None:
    """Record a decision about an object, and a denied request for it, with the object's text."""
    journal, meta = made.api.journal, written["metadata"]
    assert journal is not None
    namespace, name = meta.get("namespace", ""), meta["name"]
    journal.record(kind_key(target.group, target.kind), namespace, name, "test", own, uid=meta["uid"])
    journal.record(resource_key(target.group, target.plural), DENIED, denied_name(namespace, name), "test", own)


async def _finish(made: World) -> None:
    for name in COMPONENT_NAMES:
        made.add_seed(COMPONENTS, "", name, "")
    for namespace in NAMESPACES:
        path = TARGETS["poddisruptionbudgets.policy"].path(namespace, "a")
        budget = await made.admin("GET", path)
        allowed = {"disruptionsAllowed": 1, "currentHealthy": 2, "desiredHealthy": 1, "expectedPods": 2}
        budget["status"] |= {"observedGeneration": budget["metadata"]["generation"], **allowed}
        await made.admin("PUT", path + "/status", budget)
    service = {"namespace": "right", "name": "a", "port": 80}
    spec = {"group": EXTENSION, "version": "v1", "groupPriorityMinimum": 100, "versionPriority": 10}
    name = {"name": f"v1.{EXTENSION}"}
    body = {"metadata": name, "spec": {**spec, "service": service, "insecureSkipTLSVerify": True}}
    await made.admin("POST", "/apis/apiregistration.k8s.io/v1/apiservices", body)
    async with asyncio.timeout(20):
        while not any(r.available for r in made.api.aggregator.extensions.remotes.values()):
            await asyncio.sleep(0.02)
