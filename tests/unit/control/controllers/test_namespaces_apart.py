"""Objects of one namespace do not change what controllers do in another one.

Each controller of the manager's table is run in virtual time on a server in memory with small objects of each kind that it
follows, in one namespace; and once more while another namespace has objects of these kinds that are alike and name those of
the first namespace as owners and in all other references. What is written to the first namespace must be the same. No list of
kinds or fields stands here, so a new controller is covered.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from control.controllers import ownership
from control.controllers.addons.settings import AddonSettings
from control.controllers.context import Context
from control.controllers.manager import CONTROLLERS, ControllerConfig
from kube import pki, resources, serialize
from kube.api import meta_v1
from kube.object_names import metadata_of
from kube.resources import Resource
from tests.support import product_world
from tests.support.clock import FakeClock, settle
from tests.support.product_world import NAMESPACE, World

EVIL = "evil"
VOLATILE = ("resourceVersion", "uid", "token", "lastTransitionTime", "lastUpdateTime")
Written = tuple[str, str, str]
"""Method, path and body of a request, without names and times that depend on what else there is."""


class Recording(World):
    """Keeps the writes to a namespace, without events."""

    def __init__(self) -> None:
        super().__init__()
        self.written: Counter[Written] = Counter()

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        timeout: float | None = 60,
        most_bytes: int | None = None,
    ) -> Any:
        if method != "GET" and f"/namespaces/{NAMESPACE}/" in path and "/events" not in path:
            sent = msgspec.json.encode(steady(msgspec.json.decode(body)), order="sorted").decode() if body else ""
            self.written[method, masked(path), sent] += 1
        return await super().request(method, path, query=query, headers=headers, body=body, timeout=timeout)


def masked(text: str) -> str:
    """Return a text without the ends of generated names, which the server in memory takes from its revision."""
    return re.sub(r"-\d+\b", "-#", text)


def steady(value: Any) -> Any:
    """Return JSON without what depends on how many objects there are elsewhere."""
    if isinstance(value, dict):
        return {key: steady(item) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [steady(item) for item in value]
    return masked(value) if isinstance(value, str) else value


@pytest.fixture(scope="module")
def config() -> ControllerConfig:
    """Return a configuration that leaves no controller out."""
    ca = pki.new_ca("test", product_world.NOW)
    certificate, key = ca.cert_pem.decode(), ca.key_pem.decode()
    return ControllerConfig(
        root_ca=certificate,
        signing_cert=certificate,
        signing_key=key,
        service_account_key=key,
        local_path=True,
        addons=AddonSettings(Path("/nowhere")),
    )


def followed(name: str, config: ControllerConfig) -> list[Resource]:
    """Return the kinds that a controller follows."""
    context = Context(World().client(), FakeClock())
    with context.informers.requested() as asked:
        assert CONTROLLERS[name](context, config) is not None
    return list(dict.fromkeys(resources.of(informer.kind) for informer in asked))


def alike(kind: Resource, owner: Any, number: int) -> Any:
    """Return an object of the other namespace with everything of a small object but its name, and an owner of the first one."""
    obj = product_world.small(kind, number)
    metadata, its = metadata_of(obj), metadata_of(owner)
    resource = resources.of(type(owner))
    metadata.namespace = EVIL
    metadata.uid = f"uid-evil-{kind.target}-{resource.target}-{number}"
    metadata.owner_references = [
        meta_v1.OwnerReference(
            api_version=resource.api_version,
            kind=resource.kind,
            name=its.name or "",
            uid=its.uid or "",
            controller=True,
        )
    ]
    return obj


def copies(world: World, kinds: Sequence[Resource]) -> list[Any]:
    """Return what the first namespace has in the end, as objects of the other one, with the same owners."""
    found = []
    for kind in kinds:
        for body in world.objects.get(kind.path(), {}).values() if kind.namespaced else ():
            obj = serialize.decode(body, kind.type)
            metadata_of(obj).namespace = EVIL
            metadata_of(obj).uid = f"evil-{metadata_of(obj).uid}"
            found.append(obj)
    return found


async def work(name: str, config: ControllerConfig, evil: Sequence[Any]) -> Recording:
    """Run a controller on the small objects of its kinds, beside others; return the server with what it has written."""
    clock, world = FakeClock(), Recording()
    for kind in followed(name, config):
        for number in range(2):
            world.put(product_world.small(kind, number))
    for obj in evil:
        world.put(obj)
    context = Context(world.client(), clock)
    controller = CONTROLLERS[name](context, config)
    assert controller is not None
    tasks = [asyncio.create_task(context.informers.run())]
    await context.informers.wait_synced()
    tasks += [asyncio.create_task(controller.run()), asyncio.create_task(context.recorders.run())]
    for _ in range(6):
        await settle(300)
        await clock.advance(11)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return world


def differences(name: str, config: ControllerConfig) -> dict[str, set[Written]]:
    """Return what is written otherwise where another namespace has objects that name owners of the first one.

    By kind of the owner of all of them, or "copies" for those of all that the controller has made.
    """
    kinds = followed(name, config)
    found: dict[str, set[Written]] = {}
    with product_world.quiet():
        alone = asyncio.run(work(name, config, ()))
        others = {"copies": copies(alone, kinds)}
        for owner in [product_world.small(kind, 0) for kind in kinds]:
            alikes = [alike(kind, owner, number) for kind in kinds if kind.namespaced for number in range(2)]
            others[type(owner).__name__] = alikes
        for what, evil in others.items():
            if different := set(asyncio.run(work(name, config, evil)).written) ^ set(alone.written):
                found[what] = different
    return found


@pytest.mark.parametrize("name", sorted(CONTROLLERS))
def test_what_a_controller_writes_to_a_namespace_does_not_depend_on_others(name: str, config: ControllerConfig) -> None:
    assert differences(name, config) == {}


def by_uid_alone(obj: Any) -> tuple[str]:
    return (ownership.controller_uid(obj) or f"/{metadata_of(obj).namespace}",)


def children_everywhere(informer: Any, owner: Any) -> list[Any]:
    found: list[Any] = informer.by_index("claim", metadata_of(owner).uid)
    return found


def claimable_everywhere(informer: Any, owner: Any) -> list[Any]:
    orphans: list[Any] = informer.by_index("claim", f"/{metadata_of(owner).namespace}")
    return children_everywhere(informer, owner) + orphans


@pytest.mark.parametrize("name", ["replicaset", "daemonset", "statefulset", "job", "replicationcontroller"])
def test_children_of_another_namespace_are_noticed(
    name: str, config: ControllerConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The judge itself: children are those of all namespaces, as they once were."""
    others = {
        "by_controller_or_orphan": by_uid_alone,
        "children_of": children_everywhere,
        "claimable": claimable_everywhere,
    }
    for module in [module for key, module in sys.modules.items() if key.startswith("control.controllers")]:
        for function, other in others.items():
            if hasattr(module, function):
                monkeypatch.setattr(module, function, other)
    assert differences(name, config)
